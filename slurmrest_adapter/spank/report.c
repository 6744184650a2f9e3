#include "report.h"
#include "key.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* What a job may lose to a sidecar that is slow or away, on one node, in all its processes together. Each
 * exchange is let off the first FREE_US: a good one needs less, so only bad ones use the budget up. */
#define BUDGET_US 170000
#define FREE_US 2000
#define LEAST_US 3000
/* A process keeps less than this to itself; there are three of them in a job without steps. */
#define UNSAVED_US 8000
/* A step of very many tasks spools the rest once its process has talked for so long. */
#define LIVE_US 150000

int sra_report_configure(struct sra_config *config, int ac, char **av, int loud)
{
	char why[SRA_WHY_MAX], signature[SRA_SIGNATURE_LEN + 1];

	if (!sra_config_parse(ac, av, config, why) && !sra_key_sign(config->key_file, "", 0, signature, why))
		return 0;
	if (loud)
		sra_error("%s; nothing is reported", why);
	return -1;
}

static void choose_stream(char stream[17])
{
	struct timespec now;
	uint64_t value;

	if (getrandom(&value, sizeof(value), GRND_NONBLOCK) != sizeof(value)) {
		clock_gettime(CLOCK_REALTIME, &now);
		value = (uint64_t)now.tv_sec << 34 ^ (uint64_t)now.tv_nsec << 4 ^ (uint64_t)getpid() << 48;
	}
	snprintf(stream, 17, "%016" PRIx64, value);
}

void sra_report_enter(struct sra_report *report, uint64_t began)
{
	char why[SRA_WHY_MAX];

	report->entered = began;
	if (!report->stream[0])
		choose_stream(report->stream);
	if (sra_spool_open(&report->spool, report->config.spool, report->config.spool_max, why) &&
	    !report->told_spool++)
		sra_error("%s: %s; what cannot be delivered is lost", report->config.spool, why);
}

void sra_report_leave(struct sra_report *report)
{
	sra_spool_close(&report->spool);
	report->spent_us += sra_now_us() - report->entered;
}

static int make_event(struct sra_report *report, struct sra_event *event, const char *name, uint64_t time_us,
		      void (*more)(struct sra_event *event, const void *what), const void *what)
{
	uint64_t dropped = sra_spool_dropped(&report->spool);

	sra_event_begin(event);
	sra_event_number(event, "v", 1);
	sra_event_text(event, "event", name);
	sra_event_text(event, "cluster", report->config.cluster);
	sra_event_text(event, "node", report->node);
	sra_event_number(event, "job", report->id);
	if (report->step[0])
		sra_event_text(event, "step", report->step);
	if (report->has_array) {
		sra_event_number(event, "array_job", report->array_job);
		sra_event_number(event, "array_task", report->array_task);
	}
	sra_event_number(event, "uid", report->uid);
	if (report->job.options.pod[0])
		sra_event_text(event, "pod", report->job.options.pod);
	sra_event_seconds(event, "time", time_us);
	sra_event_text(event, "stream", report->stream);
	sra_event_number(event, "seq", ++report->sequence);
	sra_event_gpus(event, &report->gpus);
	if (more)
		more(event, what);
	if (dropped)
		sra_event_number(event, "dropped", (int64_t)dropped);
	sra_event_number(event, "spent_us", (int64_t)(report->spent_us + (sra_now_us() - report->entered)));
	return sra_event_end(event);
}

/* Is the sidecar to be asked now, or the event to be spooled at once? */
static int may_try(struct sra_report *report)
{
	struct sra_job now;

	/* The job's other processes on this node may have waited meanwhile. */
	sra_job_load(&report->spool, report->node, report->id, &now);
	if (now.waited_us + report->unsaved_us > report->job.waited_us)
		report->job.waited_us = now.waited_us + report->unsaved_us;
	return !report->gave_up && report->live_us < LIVE_US && report->job.waited_us + LEAST_US < BUDGET_US &&
	       !sra_spool_is_down(&report->spool, report->config.retry_s);
}

/* Will the sidecar never have to be sent this again? It has taken it, or never will. */
static int is_settled(int status)
{
	return (status >= 200 && status < 300) || (status >= 400 && status < 500 && status != 429);
}

/* Posts what waits; how many events the sidecar has taken or will never take, the oldest ones. */
static unsigned post(struct sra_report *report)
{
	uint64_t limit = (uint64_t)report->config.timeout_ms * 1000, left = BUDGET_US - report->job.waited_us;
	uint64_t began = sra_now_us(), end = began + (limit < left ? limit : left), now, took;
	struct sra_post posts[SRA_POSTS_MAX];
	unsigned settled = 0, answered, count = report->waits;
	char why[SRA_WHY_MAX] = "";
	int status = 0;

	for (unsigned i = 0; i < count; i++)
		posts[i] = (struct sra_post){ .body = report->waiting[i].event.text,
					      .length = report->waiting[i].event.length,
					      .signature = report->waiting[i].signature };
	/* Who closes behind the first answer is asked again for the others. */
	while (settled < count && (now = sra_now_us()) < end) {
		answered = settled + sra_exchange(&report->config.events, posts + settled, count - settled, end - now, why);
		if (answered == settled) {
			status = -1;
			break;
		}
		while (settled < answered && is_settled(status = posts[settled].status)) {
			if (status >= 400)
				sra_error("the sidecar answers %d to event %u of %s: not sent again", status,
					  report->waiting[settled].sequence, report->stream);
			settled++;
		}
		if (settled < answered)
			break;
	}
	took = sra_now_us() - began;
	report->live_us += took;
	if (took > FREE_US) {
		report->job.waited_us += took - FREE_US;
		report->unsaved_us += took - FREE_US;
		if (report->unsaved_us > UNSAVED_US) {
			sra_job_store(&report->spool, report->node, report->id, &report->job);
			report->unsaved_us = 0;
		}
	}
	if (settled == count) {
		sra_spool_mark_up(&report->spool);
		return settled;
	}
	if (status < 0 || is_settled(status))
		sra_verbose("event %u is spooled: %s", report->waiting[settled].sequence,
			    why[0] ? why : "no answer in time");
	else
		sra_verbose("event %u is spooled: the sidecar answers %d", report->waiting[settled].sequence, status);
	/* A refused connection costs nothing, so the next event finds out by itself whether the sidecar is back. */
	if (status >= 0 || took > FREE_US) {
		sra_spool_mark_down(&report->spool);
		report->gave_up = report->spool.fd < 0;
	}
	return settled;
}

static void spool(struct sra_report *report, const struct sra_signed *kept)
{
	char file[64], why[SRA_WHY_MAX];

	snprintf(file, sizeof(file), "%020" PRIu64 "-%s-%06u.event", kept->time_us * 1000u, report->stream,
		 kept->sequence);
	if (report->spool.fd >= 0 && !sra_spool_put(&report->spool, file, kept->signature, kept->event.text,
						    kept->event.length, why)) {
		report->spooled++;
		return;
	}
	report->lost++;
	if (report->spool.fd >= 0)
		sra_error("%s; event %u is lost", why, kept->sequence);
}

static void deliver(struct sra_report *report)
{
	unsigned settled = report->waits && may_try(report) ? post(report) : 0;

	report->delivered += settled;
	for (unsigned i = settled; i < report->waits; i++)
		spool(report, &report->waiting[i]);
	report->waits = 0;
}

void sra_report_send(struct sra_report *report, enum sra_when when, const char *name,
		     void (*more)(struct sra_event *event, const void *what), const void *what)
{
	struct sra_signed *made;
	char why[SRA_WHY_MAX];
	struct timespec now;

	if (report->waits == SRA_POSTS_MAX)
		deliver(report);
	made = &report->waiting[report->waits];
	clock_gettime(CLOCK_REALTIME, &now);
	made->time_us = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
	if (make_event(report, &made->event, name, made->time_us, more, what)) {
		sra_error("the event %s does not fit and is lost", name);
		report->lost++;
	} else if (sra_key_sign(report->config.key_file, made->event.text, made->event.length, made->signature, why)) {
		sra_error("%s; the event %s is lost", why, name);
		report->lost++;
	} else {
		made->sequence = report->sequence;
		report->waits++;
	}
	if (when == SRA_NOW)
		deliver(report);
}

void sra_report_sum_up(const struct sra_report *report)
{
	sra_verbose("job %" PRIu32 " %s on %s: %u events delivered, %u spooled, %u lost, %" PRIu64 " us with the sidecar, %" PRIu64 " us",
		    report->id, report->step[0] ? report->step : "node", report->node, report->delivered,
		    report->spooled, report->lost, report->live_us, report->spent_us);
}
