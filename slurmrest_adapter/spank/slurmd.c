/* slurmd, and the job's first and last moment on a node. Slurm runs prolog and epilog as root in processes of
 * their own, in which the plugin is loaded anew and slurm_spank_init is not called. */
#include "contexts.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

static struct sra_report report;

/* slurmd reports nothing itself, but a bad line is best named when slurmd starts. */
void sra_slurmd_init(int ac, char **av)
{
	static struct sra_config config;

	(void)sra_report_configure(&config, ac, av, 1);
}

/* Reads who the job is. slurmd makes this environment, so it can be trusted. */
static int identify(spank_t spank)
{
	const char *node = getenv("SLURMD_NODENAME"), *gpus = getenv("SLURM_JOB_GPUS");
	uid_t uid;

	if (spank_get_item(spank, S_JOB_ID, &report.id) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS || !node) {
		sra_error("Slurm does not say which job this is; nothing is reported");
		return -1;
	}
	report.uid = (uint32_t)uid;
	sra_printable(node, report.node, sizeof(report.node));
	/* Nothing is said where a job has no GPU, nor where GPUs have no numbers: then it is not known here. */
	if (gpus)
		sra_gpus_parse(gpus, &report.gpus);
	return 0;
}

static void script(spank_t spank, int ac, char **av, const char *event, int ends)
{
	uint64_t began = sra_now_us();
	struct sra_options said;
	struct sra_job known;

	memset(&report, 0, sizeof(report));
	memset(&said, 0, sizeof(said));
	if (sra_report_configure(&report.config, ac, av, 1) || identify(spank))
		return;
	sra_options_ask(spank, &said);
	sra_report_enter(&report, began);
	if (ends)
		sra_job_load(&report.spool, report.node, report.id, &known);
	else
		memset(&known, 0, sizeof(known));
	sra_options_merge(&said, &known.options);
	report.job.options = said;
	report.job.waited_us = known.waited_us;
	/* For the steps of srun, which have no option of ours. What an earlier job of that number left is not this
	 * one's. */
	if (!ends && (said.pod[0] || said.events != SRA_UNSAID))
		sra_job_store(&report.spool, report.node, report.id, &report.job);
	else if (!ends)
		sra_job_forget(&report.spool, report.node, report.id);
	if (sra_options_report(&said, report.config.report_all) && sra_options_wants(&said, ends))
		sra_report_send(&report, SRA_NOW, event, NULL, NULL);
	if (ends)
		sra_job_forget(&report.spool, report.node, report.id);
	sra_report_leave(&report);
	if (report.sequence)
		sra_report_sum_up(&report);
}

void sra_slurmd_prolog(spank_t spank, int ac, char **av)
{
	script(spank, ac, av, "allocated", 0);
}

void sra_slurmd_epilog(spank_t spank, int ac, char **av)
{
	script(spank, ac, av, "released", 1);
}
