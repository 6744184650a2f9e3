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

/* The length of the body behind this head, ANSWER_MAX for one that is not worth waiting for. */
static size_t body_of(const char *head, int status)
{
	const char *line = strcasestr(head, "\r\nContent-Length:"), *digits;
	char number[8];
	uint64_t value;
	size_t length;

	if (status < 200 || status == 204 || status == 304)
		return 0;
	if (!line)
		return ANSWER_MAX;
	digits = line + strlen("\r\nContent-Length:");
	digits += strspn(digits, " ");
	length = strcspn(digits, " \r");
	if (length >= sizeof(number))
		return ANSWER_MAX;
	memcpy(number, digits, length);
	number[length] = '\0';
	return sra_number(number, ANSWER_MAX, &value) ? ANSWER_MAX : (size_t)value;
}

/* What has come and was not read as an answer yet. */
struct received {
	char text[ANSWER_MAX + 1];
	size_t have;
	int over; /* no more comes */
};

/* Receives more; -1 when the time is over or the connection broken. */
static int receive(int fd, struct received *got, uint64_t end, char why[SRA_WHY_MAX])
{
	for (;;) {
		ssize_t more = recv(fd, got->text + got->have, ANSWER_MAX - got->have, MSG_DONTWAIT);

		if (more < 0 && (errno == EAGAIN || errno == EINTR)) {
			if (await(fd, POLLIN, end, why))
				return -1;
			continue;
		}
		if (more < 0)
			return fail(why, "receive", errno);
		got->over = more == 0;
		got->have += (size_t)more;
		got->text[got->have] = '\0';
		return 0;
	}
}

/* Reads one answer until its head is whole, so that the other side is not cut off in the middle of it. Of an
 * answer that is too long or ends early the status is enough; nothing can be read behind it. */
static int answer(int fd, struct received *got, uint64_t end, char why[SRA_WHY_MAX])
{
	char *head;
	size_t whole;
	int status;

	while (!(head = strstr(got->text, "\r\n\r\n")) && got->have < ANSWER_MAX && !got->over)
		if (receive(fd, got, end, why))
			return -1;
	status = got->have < 12 ? -1 : status_of(got->text);
	if (status < 0)
		return fail(why, got->have ? "the answer is not HTTP" : "the connection was closed", 0);
	whole = got->have;
	if (head) {
		*head = '\0';
		whole = (size_t)(head - got->text) + 4 + body_of(got->text, status);
	}
	if (whole > got->have)
		whole = got->have; /* the rest of the body is not waited for: what follows is no answer then */
	got->have -= whole;
	memmove(got->text, got->text + whole, got->have + 1);
	return status;
}

static int write_requests(const struct sra_endpoint *to, const struct sra_post *posts, unsigned count, char *text)
{
	int length = 0;

	for (unsigned i = 0; i < count; i++) {
		int head = snprintf(text + length, HEAD_MAX,
				    "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
				    "Content-Length: %zu\r\nX-SRA-Signature: %s\r\n%s\r\n",
				    to->path, to->host, posts[i].length, posts[i].signature,
				    i + 1 < count ? "" : "Connection: close\r\n");

		if (head < 0 || head >= HEAD_MAX || posts[i].length > SRA_EVENT_MAX)
			return -1;
		length += head;
		memcpy(text + length, posts[i].body, posts[i].length);
		length += (int)posts[i].length;
	}
	return length;
}

unsigned sra_exchange(const struct sra_endpoint *to, struct sra_post *posts, unsigned count, uint64_t limit_us,
		      char why[SRA_WHY_MAX])
{
	uint64_t end = sra_now_us() + limit_us;
	char text[SRA_POSTS_MAX * (HEAD_MAX + SRA_EVENT_MAX)];
	struct received got = { .have = 0 };
	unsigned answered = 0;
	int on = 1, length, fd;

	for (unsigned i = 0; i < count; i++)
		posts[i].status = -1;
	length = count <= SRA_POSTS_MAX ? write_requests(to, posts, count, text) : -1;
	if (length < 0) {
		fail(why, "too long", 0);
		return 0;
	}
	fd = socket(to->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		fail(why, "socket", errno);
		return 0;
	}
	if (to->address.ss_family != AF_UNIX)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!reach(fd, to, end, why) && !send_all(fd, text, (size_t)length, end, why))
		while (answered < count && (posts[answered].status = answer(fd, &got, end, why)) >= 0)
			answered++;
	close(fd);
	return answered;
}
