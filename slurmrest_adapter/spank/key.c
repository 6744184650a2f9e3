#include "key.h"
#include "sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_LEAST 32
#define KEY_MOST 4096

static int refuse(char why[SRA_WHY_MAX], const char *file, const char *what)
{
	snprintf(why, SRA_WHY_MAX, "key_file %s: %s", file, what);
	return -1;
}

/* Only a regular file, nobody else's, that nobody else may read. Returns its length, -1 with the reason. */
static ssize_t read_key(int fd, const char *file, uint8_t key[KEY_MOST + 1], char why[SRA_WHY_MAX])
{
	struct stat found;
	ssize_t got;

	if (fstat(fd, &found) || !S_ISREG(found.st_mode))
		return refuse(why, file, "not a regular file");
	if (found.st_uid != 0 && found.st_uid != geteuid())
		return refuse(why, file, "not owned by root");
	if (found.st_mode & (S_IRWXG | S_IRWXO))
		return refuse(why, file, "group or others have access to it; chmod 600");
	got = read(fd, key, KEY_MOST + 1);
	if (got < 0)
		return refuse(why, file, strerror(errno));
	if (got > 0 && key[got - 1] == '\n')
		got--;
	if (got < KEY_LEAST || got > KEY_MOST)
		return refuse(why, file, "a key has 32 to 4096 bytes");
	return got;
}

int sra_key_sign(const char *file, const void *body, size_t length, char signature[SRA_SIGNATURE_LEN + 1],
		 char why[SRA_WHY_MAX])
{
	uint8_t key[KEY_MOST + 1], digest[SRA_SHA256_LEN];
	ssize_t size;
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return refuse(why, file, strerror(errno));
	size = read_key(fd, file, key, why);
	close(fd);
	if (size > 0) {
		sra_hmac_sha256(key, (size_t)size, body, length, digest);
		memcpy(signature, "sha256=", 7);
		for (int i = 0; i < SRA_SHA256_LEN; i++)
			snprintf(signature + 7 + 2 * i, 3, "%02x", digest[i]);
	}
	explicit_bzero(key, sizeof(key));
	return size > 0 ? 0 : -1;
}
