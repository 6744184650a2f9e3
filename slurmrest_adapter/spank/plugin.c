/* The symbols that Slurm looks for; each goes to the file of its context.
 *
 * Every callback returns 0, whatever happened: where plugstack.conf says `required`, another value would fail
 * the job. Nothing is done in slurm_spank_user_init, task_init_privileged and task_init, which run with the
 * user's rights or in the user's own processes. */
#include "contexts.h"
#include "options.h"

#pragma GCC visibility push(default)
SPANK_PLUGIN(slurmrest_adapter, 1)

int slurm_spank_init(spank_t spank, int ac, char *av[])
{
	static struct sra_options unused;

	switch (spank_context()) {
	case S_CTX_SLURMD:
		sra_slurmd_init(ac, av);
		break;
	case S_CTX_REMOTE:
		sra_stepd_init(spank, ac, av);
		break;
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR: /* srun, sbatch and salloc: the user's own, who may not read the key */
		sra_options_register(spank, &unused);
		break;
	default:
		break;
	}
	return 0;
}

int slurm_spank_init_post_opt(spank_t spank, int ac, char *av[])
{
	(void)ac;
	(void)av;
	if (spank_context() == S_CTX_REMOTE)
		sra_stepd_options_read(spank);
	return 0;
}

int slurm_spank_task_post_fork(spank_t spank, int ac, char *av[])
{
	(void)ac;
	(void)av;
	sra_stepd_task_started(spank);
	return 0;
}

int slurm_spank_task_exit(spank_t spank, int ac, char *av[])
{
	(void)ac;
	(void)av;
	sra_stepd_task_ended(spank);
	return 0;
}

int slurm_spank_exit(spank_t spank, int ac, char *av[])
{
	(void)spank;
	(void)ac;
	(void)av;
	if (spank_context() == S_CTX_REMOTE)
		sra_stepd_exit();
	return 0;
}

int slurm_spank_job_prolog(spank_t spank, int ac, char *av[])
{
	sra_slurmd_prolog(spank, ac, av);
	return 0;
}

int slurm_spank_job_epilog(spank_t spank, int ac, char *av[])
{
	sra_slurmd_epilog(spank, ac, av);
	return 0;
}
#pragma GCC visibility pop
