/* Non-blocking from the first to the last call, because slurmstepd and the user wait for us. */
#include "transport.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HEAD_MAX 1024
#define ANSWER_MAX 4096

static int fail(char why[SRA_WHY_MAX], const char *what, int error)
{
	snprintf(why, SRA_WHY_MAX, "%s%s%s", what, error ? ": " : "", error ? strerror(error) : "");
	return -1;
}

/* Waits until the socket is ready; -1 when the time is over. */
static int await(int fd, short events, uint64_t end, char why[SRA_WHY_MAX])
{
	struct pollfd wanted = { .fd = fd, .events = events };

	for (;;) {
		uint64_t now = sra_now_us();
		int left = now < end ? (int)((end - now + 999) / 1000) : 0, found;

		found = left ? poll(&wanted, 1, left) : 0;
		if (found > 0)
			return 0;
		if (found == 0)
			return fail(why, "no answer in time", 0);
		if (errno != EINTR)
			return fail(why, "poll", errno);
	}
}

static int reach(int fd, const struct sra_endpoint *to, uint64_t end, char why[SRA_WHY_MAX])
{
	socklen_t size = sizeof(int);
	int error = 0;

	if (!connect(fd, (const struct sockaddr *)&to->address, to->length))
		return 0;
	/* EAGAIN is a unix socket whose queue is full: it is not going to connect later. */
	if (errno != EINPROGRESS)
		return fail(why, "connect", errno);
	if (await(fd, POLLOUT, end, why))
		return -1;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) || error)
		return fail(why, "connect", error ? error : errno);
	return 0;
}

static int send_all(int fd, const char *data, size_t length, uint64_t end, char why[SRA_WHY_MAX])
{
	while (length) {
		ssize_t sent = send(fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent > 0) {
			data += sent;
			length -= (size_t)sent;
		} else if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
			if (await(fd, POLLOUT, end, why))
				return -1;
		} else {
			return fail(why, "send", sent < 0 ? errno : 0);
		}
	}
	return 0;
}

/* The status of "HTTP/1.x NNN ...", -1 if that is no such line. */
static int status_of(const char *line)
{
	int status;

	if (strncmp(line, "HTTP/1.", 7) != 0 || line[7] < '0' || line[7] > '9' || line[8] != ' ')
		return -1;
	for (int i = 9; i < 12; i++)
		if (line[i] < '0' || line[i] > '9')
			return -1;
	status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
	return status >= 100 && status <= 599 ? status : -1;
}

/* Reads until the head is whole, so that the other side is not cut off in the middle of its answer. */
static int answer(int fd, uint64_t end, char why[SRA_WHY_MAX])
{
	char text[ANSWER_MAX + 1];
	size_t have = 0;

	while (have < ANSWER_MAX) {
		ssize_t got = recv(fd, text + have, ANSWER_MAX - have, MSG_DONTWAIT);

		if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
			if (await(fd, POLLIN, end, why))
				return -1;
			continue;
		}
		if (got < 0)
			return fail(why, "receive", errno);
		if (got == 0)
			break;
		have += (size_t)got;
		text[have] = '\0';
		if (strstr(text, "\r\n\r\n"))
			break;
	}
	text[have] = '\0';
	if (have < 12 || status_of(text) < 0)
		return fail(why, "the answer is not HTTP", 0);
	return status_of(text);
}

int sra_post(const struct sra_endpoint *to, const char *body, size_t length, const char *signature,
	     uint64_t limit_us, char why[SRA_WHY_MAX])
{
	uint64_t end = sra_now_us() + limit_us;
	char text[HEAD_MAX + SRA_EVENT_MAX];
	int status = -1, on = 1, head, fd;

	head = snprintf(text, HEAD_MAX,
			"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
			"X-SRA-Signature: %s\r\nConnection: close\r\n\r\n",
			to->path, to->host, length, signature);
	if (head < 0 || head >= HEAD_MAX || length > SRA_EVENT_MAX)
		return fail(why, "too long", 0);
	memcpy(text + head, body, length);
	fd = socket(to->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fail(why, "socket", errno);
	if (to->address.ss_family != AF_UNIX)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!reach(fd, to, end, why) && !send_all(fd, text, (size_t)head + length, end, why))
		status = answer(fd, end, why);
	close(fd);
	return status;
}
