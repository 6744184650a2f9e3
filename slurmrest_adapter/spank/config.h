/* The arguments of the plugin's line in plugstack.conf. */
#ifndef SRA_CONFIG_H
#define SRA_CONFIG_H

#include "sra.h"
#include <sys/socket.h>

/* Where events are posted. */
struct sra_endpoint {
	struct sockaddr_storage address;
	socklen_t length;
	char host[SRA_PATH_MAX]; /* for the Host header */
	char path[SRA_PATH_MAX];
};

struct sra_config {
	struct sra_endpoint events;
	char cluster[SRA_NAME_MAX + 1];
	char key_file[SRA_PATH_MAX];
	char spool[SRA_PATH_MAX];
	unsigned spool_max;  /* files */
	unsigned timeout_ms; /* for one event, all of connect, send and answer */
	unsigned retry_s;    /* how long nothing is tried after a time-out */
	int report_all;      /* jobs without our options, too */
};

/* Room for the sentence that says what is wrong. */
#define SRA_WHY_MAX 256

/* Reads the arguments. 0, or -1 with the reason, which names the argument, in `why`. */
int sra_config_parse(int ac, char *const *av, struct sra_config *config, char why[SRA_WHY_MAX]);

/* Reads http://HOST:PORT[/PATH] or unix:///PATH. HOST is an address or a name in the file `hosts`: a name
 * server is never asked, since it may take seconds to answer. 0, or -1 with the reason. */
int sra_endpoint_parse(const char *url, const char *hosts, struct sra_endpoint *endpoint, char why[SRA_WHY_MAX]);

#endif
