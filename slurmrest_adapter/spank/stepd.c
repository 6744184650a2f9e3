/* slurmstepd: the life of one step on one node. All of these run as root in slurmstepd itself, never in the
 * processes it forks for the user: those inherit no key, no descriptor and no variable from here. */
#include "contexts.h"
#include "report.h"
#include "usage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Slurm's numbers for steps that have a name (slurm/slurm.h); srun's count from 0. */
#define STEP_INTERACTIVE 0xfffffffau
#define STEP_BATCH 0xfffffffbu
#define STEP_EXTERN 0xfffffffcu
/* slurm/slurm.h: not a member of an array. */
#define NO_VALUE 0xfffffffeu

static struct sra_report report;
static struct sra_options said;
static struct sra_usage usage;
static int configured, active, started, has_usage, has_tasks;
static uint32_t running; /* tasks on this node; 0 where Slurm does not say */

void sra_stepd_init(spank_t spank, int ac, char **av)
{
	uint64_t began = sra_now_us();

	memset(&report, 0, sizeof(report));
	memset(&said, 0, sizeof(said));
	configured = !sra_report_configure(&report.config, ac, av, 0);
	active = started = has_usage = has_tasks = 0;
	running = 0;
	/* Offered in any case: Slurm complains about options that nobody knows. */
	sra_options_register(spank, &said);
	report.spent_us = sra_now_us() - began;
}

static void name_step(uint32_t step, char name[16])
{
	if (step == STEP_BATCH)
		memcpy(name, "batch", sizeof("batch"));
	else if (step == STEP_EXTERN)
		memcpy(name, "extern", sizeof("extern"));
	else if (step == STEP_INTERACTIVE)
		memcpy(name, "interactive", sizeof("interactive"));
	else
		snprintf(name, 16, "%" PRIu32, step);
}

/* The indices are Slurm's, those of the node. CUDA_VISIBLE_DEVICES is not read: where devices are constrained
 * it counts from 0. */
static void find_gpus(spank_t spank, uint32_t step)
{
	char text[1024];

	if (step == STEP_EXTERN)
		return;
	/* A step of srun inherits the script's SLURM_JOB_GPUS, which may be another node's. */
	if (spank_getenv(spank, step == STEP_BATCH ? "SLURM_JOB_GPUS" : "SLURM_STEP_GPUS", text, sizeof(text)) ==
	    ESPANK_SUCCESS)
		sra_gpus_parse(text, &report.gpus);
	else if (spank_getenv(spank, "SLURM_GPUS_ON_NODE", text, sizeof(text)) == ESPANK_ENV_NOEXIST)
		report.gpus.known = 1;
}

static int identify(spank_t spank)
{
	/* slurmstepd's own environment names its node; the job's may be that of another node's script. */
	const char *node = getenv("SLURMD_NODENAME");
	uint32_t step, array_job, array_task;
	uid_t uid;

	if (spank_get_item(spank, S_JOB_ID, &report.id) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS || !node) {
		sra_error("Slurm does not say which job this is; nothing is reported");
		return -1;
	}
	report.uid = (uint32_t)uid;
	sra_printable(node, report.node, sizeof(report.node));
	name_step(step, report.step);
	if (spank_get_item(spank, S_JOB_ARRAY_ID, &array_job) == ESPANK_SUCCESS && array_job &&
	    spank_get_item(spank, S_JOB_ARRAY_TASK_ID, &array_task) == ESPANK_SUCCESS && array_task < NO_VALUE) {
		report.has_array = 1;
		report.array_job = array_job;
		report.array_task = array_task;
	}
	/* Nothing of the user's is started in the external step, so nothing follows its beginning for long. */
	has_tasks = step != STEP_EXTERN;
	if (!has_tasks || spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &running) != ESPANK_SUCCESS)
		running = 0;
	find_gpus(spank, step);
	return 0;
}

void sra_stepd_options_read(spank_t spank)
{
	uint64_t began = sra_now_us();

	sra_options_hide(spank);
	if (!configured || identify(spank))
		return;
	sra_report_enter(&report, began);
	sra_job_load(&report.spool, report.node, report.id, &report.job);
	sra_options_merge(&said, &report.job.options);
	report.job.options = said;
	active = sra_options_report(&said, report.config.report_all);
	if (active) {
		started = 1;
		if (sra_options_wants(&said, 0))
			sra_report_send(&report, has_tasks ? SRA_HELD : SRA_NOW, "step_start", NULL, NULL);
	}
	sra_report_leave(&report);
}

static void add_task(struct sra_event *event, const void *what)
{
	sra_event_number(event, "task", *(const uint32_t *)what);
}

void sra_stepd_task_started(spank_t spank)
{
	uint64_t began = sra_now_us();
	uint32_t task;
	pid_t pid;

	if (!active)
		return;
	sra_report_enter(&report, began);
	if (!has_usage && spank_get_item(spank, S_TASK_PID, &pid) == ESPANK_SUCCESS) {
		sra_usage_find(&usage, pid, report.id);
		has_usage = 1;
	}
	if (sra_options_wants(&said, 0) && spank_get_item(spank, S_TASK_GLOBAL_ID, &task) == ESPANK_SUCCESS)
		sra_report_send(&report, SRA_NOW, "task_start", add_task, &task);
	sra_report_leave(&report);
}

struct ended {
	uint32_t task;
	int status;
};

static void add_end(struct sra_event *event, const void *what)
{
	const struct ended *ended = what;

	sra_event_number(event, "task", ended->task);
	sra_event_number(event, "status", ended->status);
	if (WIFEXITED(ended->status))
		sra_event_number(event, "exit_code", WEXITSTATUS(ended->status));
	else if (WIFSIGNALED(ended->status))
		sra_event_number(event, "signal", WTERMSIG(ended->status));
}

void sra_stepd_task_ended(spank_t spank)
{
	uint64_t began = sra_now_us();
	struct ended ended;

	if (!active)
		return;
	sra_report_enter(&report, began);
	sra_usage_read(&usage);
	if (spank_get_item(spank, S_TASK_GLOBAL_ID, &ended.task) == ESPANK_SUCCESS &&
	    spank_get_item(spank, S_TASK_EXIT_STATUS, &ended.status) == ESPANK_SUCCESS)
		/* Behind the last one comes the step's end. */
		sra_report_send(&report, running == 1 ? SRA_HELD : SRA_NOW, "task_exit", add_end, &ended);
	if (running)
		running--;
	sra_report_leave(&report);
}

static void add_usage(struct sra_event *event, const void *what)
{
	const struct sra_usage *used = what;

	if (used->has_cpu)
		sra_event_seconds(event, "cpu_s", used->cpu_us);
	if (used->has_peak)
		sra_event_number(event, "peak_bytes", (int64_t)used->peak_bytes);
}

void sra_stepd_exit(void)
{
	uint64_t began = sra_now_us();

	if (!active || !started)
		return;
	sra_report_enter(&report, began);
	sra_usage_read(&usage);
	sra_report_send(&report, SRA_NOW, "step_end", add_usage, &usage);
	sra_report_leave(&report);
	sra_report_sum_up(&report);
	active = 0;
}
