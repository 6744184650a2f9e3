/* The address of the sidecar. Nothing here asks a name server: that may block for seconds. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>
#include <unistd.h>

#define DEFAULT_PATH "/spank/v1/events"
#define HOST_MAX 253
/* What is read of the hosts file. */
#define HOSTS_MAX 65536

static int bad(char why[SRA_WHY_MAX], const char *what, const char *value)
{
	char shown[64];

	snprintf(why, SRA_WHY_MAX, "events: %s: \"%s\"", what, sra_printable(value, shown, sizeof(shown)));
	return -1;
}

static int numeric(const char *host, uint16_t port, struct sra_endpoint *endpoint)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
		memcpy(&endpoint->address, &v4, sizeof(v4));
		endpoint->length = sizeof(v4);
		return 0;
	}
	if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
		memcpy(&endpoint->address, &v6, sizeof(v6));
		endpoint->length = sizeof(v6);
		return 0;
	}
	return -1;
}

/* The address of a line `address name...` if one of the names is `host`. */
static int hosts_line(char *line, const char *host, uint16_t port, struct sra_endpoint *endpoint)
{
	char *rest = NULL, *word, *address;

	line[strcspn(line, "#")] = '\0';
	address = strtok_r(line, " \t\r", &rest);
	while (address && (word = strtok_r(NULL, " \t\r", &rest)))
		if (!strcasecmp(word, host))
			return numeric(address, port, endpoint);
	return -1;
}

static int named(const char *file, const char *host, uint16_t port, struct sra_endpoint *endpoint)
{
	static char text[HOSTS_MAX];
	char *rest = NULL;
	ssize_t got;
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -1;
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got < 0)
		return -1;
	text[got] = '\0';
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		if (!hosts_line(line, host, port, endpoint))
			return 0;
	return -1;
}

static int unix_socket(const char *file, const char *url, struct sra_endpoint *endpoint, char why[SRA_WHY_MAX])
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	size_t length = strlen(file);

	if (file[0] != '/' || length >= sizeof(name.sun_path))
		return bad(why, "a unix socket is unix:///PATH, of at most 107 bytes", url);
	memcpy(name.sun_path, file, length + 1);
	memcpy(&endpoint->address, &name, sizeof(name));
	endpoint->length = sizeof(name);
	memcpy(endpoint->host, "localhost", sizeof("localhost"));
	memcpy(endpoint->path, DEFAULT_PATH, sizeof(DEFAULT_PATH));
	return 0;
}

static int http_path(const char *path, const char *url, struct sra_endpoint *endpoint, char why[SRA_WHY_MAX])
{
	size_t length = strlen(path);

	if (length <= 1) {
		memcpy(endpoint->path, DEFAULT_PATH, sizeof(DEFAULT_PATH));
		return 0;
	}
	if (length >= SRA_PATH_MAX || !sra_is_word(path, "/_.~%-", SRA_PATH_MAX))
		return bad(why, "the path holds what no path may", url);
	memcpy(endpoint->path, path, length + 1);
	return 0;
}

int sra_endpoint_parse(const char *url, const char *hosts, struct sra_endpoint *endpoint, char why[SRA_WHY_MAX])
{
	static const char FORM[] = "not http://HOST:PORT/PATH or unix:///PATH";
	char host[HOST_MAX + 1], port_text[6];
	const char *begin, *end, *colon, *path;
	uint64_t port;
	size_t size;

	memset(endpoint, 0, sizeof(*endpoint));
	if (!strncmp(url, "unix://", 7))
		return unix_socket(url + 7, url, endpoint, why);
	if (strncmp(url, "http://", 7) != 0)
		return bad(why, FORM, url);
	begin = url + 7;
	path = begin + strcspn(begin, "/");
	end = *begin == '[' ? memchr(begin, ']', (size_t)(path - begin)) : memchr(begin, ':', (size_t)(path - begin));
	if (!end)
		return bad(why, FORM, url);
	colon = *begin == '[' ? end + 1 : end;
	begin += *begin == '[';
	size = (size_t)(path - colon);
	if (*colon != ':' || end == begin || end - begin > HOST_MAX || size < 2 || size > sizeof(port_text))
		return bad(why, FORM, url);
	memcpy(host, begin, (size_t)(end - begin));
	host[end - begin] = '\0';
	memcpy(port_text, colon + 1, size - 1);
	port_text[size - 1] = '\0';
	if (sra_number(port_text, 65535, &port) || port == 0 || !sra_is_word(host, ".:_-", HOST_MAX))
		return bad(why, FORM, url);
	if (numeric(host, (uint16_t)port, endpoint) && named(hosts, host, (uint16_t)port, endpoint))
		return bad(why, "HOST is neither an address nor in /etc/hosts (no name server is asked)", url);
	memcpy(endpoint->host, url + 7, (size_t)(path - (url + 7)) < SRA_PATH_MAX ? (size_t)(path - (url + 7)) : 0);
	return http_path(path, url, endpoint, why);
}
