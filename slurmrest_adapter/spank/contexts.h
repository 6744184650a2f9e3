/* The contexts in which Slurm calls the plugin; one file each. None of these ever fails. */
#ifndef SRA_CONTEXTS_H
#define SRA_CONTEXTS_H

#include "sra.h"

/* slurmd.c: slurmd itself, and the processes it starts for prolog and epilog. */
void sra_slurmd_init(int ac, char **av);
void sra_slurmd_prolog(spank_t spank, int ac, char **av);
void sra_slurmd_epilog(spank_t spank, int ac, char **av);

/* stepd.c: slurmstepd, one process for each step and node. */
void sra_stepd_init(spank_t spank, int ac, char **av);
void sra_stepd_options_read(spank_t spank);
void sra_stepd_task_started(spank_t spank);
void sra_stepd_task_ended(spank_t spank);
void sra_stepd_exit(void);

#endif
