/* What all parts share: limits, names, log lines. */
#ifndef SRA_H
#define SRA_H

#include <slurm/spank.h>
#include <stddef.h>
#include <stdint.h>

#define SRA_NAME "slurmrest_adapter"

/* An event and its NUL; the sidecar refuses longer ones. */
#define SRA_EVENT_MAX 4096
#define SRA_PATH_MAX 256
#define SRA_NAME_MAX 64
/* "sha256=" and 64 hexadecimal digits. */
#define SRA_SIGNATURE_LEN 71
/* Longer lists of GPUs are cut off; no node has as many. */
#define SRA_GPUS_MAX 128

/* Every line in Slurm's logs begins with the plugin's name. */
#define sra_error(format, ...) slurm_error(SRA_NAME ": " format, ##__VA_ARGS__)
#define sra_verbose(format, ...) slurm_verbose(SRA_NAME ": " format, ##__VA_ARGS__)

/* Microseconds of a clock that only goes forward. */
uint64_t sra_now_us(void);

/* Copies at most size - 1 bytes of `from` and ends with NUL; what is not printable ASCII becomes '?', so that
 * a user's words cannot forge lines in a log. Returns `to`. */
char *sra_printable(const char *from, char *to, size_t size);

/* 1 if every character of `text` is a letter, a digit or one of `more`, and there are 1 to `most` of them. */
int sra_is_word(const char *text, const char *more, size_t most);

/* Reads a decimal number without sign or blanks, not above `most`. 0 if it is one, else -1. */
int sra_number(const char *text, uint64_t most, uint64_t *value);

#endif
