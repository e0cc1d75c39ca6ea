// Writers of Redis, as nephos-load's are: each has one write in flight, and sends the next when it was answered; they share
// so many connections. With a follower, a write is SET and PUBLISH in one MULTI, and "notified" is from sending it to
// its arrival at another connection that has subscribed.
//
// Usage: bench_peers PORT WRITERS CONNECTIONS SECONDS write|notify
// Prints: writes a second, reply p50 and p99, notified p50 and p99 (microseconds; 0 without a follower).
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { VALUE = 100, CONNECTIONS_MAX = 1024, ROOM = 1 << 16, MICROSECONDS_MAX = 1000000 };

struct connection {
  int fd;
  int first, writers;  // Its writers, by number; their writes are answered in the order in which they were sent.
  uint64_t *sent;
  int head;
  char in[ROOM];
  size_t filled;
};

static struct connection connections[CONNECTIONS_MAX], follower;
static uint32_t replies[MICROSECONDS_MAX], notified[MICROSECONDS_MAX];
static int follows, isMeasuring;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static int dial(int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) fail("connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

static void put(int fd, const char *bytes, size_t count) {
  while (count > 0) {
    ssize_t written = write(fd, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("write");
    bytes += written;
    count -= (size_t)written;
  }
}

// One write of the writer whose turn it is.
static size_t request(char *out, int writer, uint64_t time) {
  char value[VALUE + 1], key[32];
  memset(value, 'v', VALUE);
  value[VALUE] = 0;
  int digits = snprintf(value, sizeof value, "T%020llu", (unsigned long long)time);
  value[digits] = 'v';
  int keyBytes = snprintf(key, sizeof key, "key-%d", writer);
  int count = 0;
  if (follows) count += sprintf(out + count, "*1\r\n$5\r\nMULTI\r\n");
  count += sprintf(out + count, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", keyBytes, key, VALUE, value);
  if (follows)
    count += sprintf(out + count, "*3\r\n$7\r\nPUBLISH\r\n$5\r\nstore\r\n$%d\r\n%s\r\n*1\r\n$4\r\nEXEC\r\n", VALUE, value);
  return (size_t)count;
}

static void note(uint32_t *histogram, uint64_t nanoseconds) {
  uint64_t place = nanoseconds / 1000;
  histogram[place < MICROSECONDS_MAX ? place : MICROSECONDS_MAX - 1]++;
}

static double percentile(const uint32_t *histogram, double share) {
  uint64_t total = 0, seen = 0;
  for (int i = 0; i < MICROSECONDS_MAX; i++) total += histogram[i];
  if (total == 0) return 0;
  for (int i = 0; i < MICROSECONDS_MAX; i++) {
    seen += histogram[i];
    if ((double)seen >= share * (double)total) return i;
  }
  return MICROSECONDS_MAX;
}

// Reads what has come, and calls for each whole line. Returns how many lines were an answer's last.
static int take(struct connection *connection, int isFollower, uint64_t time) {
  ssize_t count = read(connection->fd, connection->in + connection->filled, ROOM - connection->filled);
  if (count < 0 && errno == EINTR) return 0;
  if (count <= 0) fail("read");
  connection->filled += (size_t)count;
  int answers = 0;
  char *line = connection->in, *end = connection->in + connection->filled, *stop;
  while ((stop = memchr(line, '\n', (size_t)(end - line))) != NULL) {
    if (*line == '-') {
      fwrite(line, 1, (size_t)(stop - line), stderr);
      exit(1);
    }
    if (isFollower) {
      if (*line == 'T' && isMeasuring) note(notified, time - strtoull(line + 1, NULL, 10));
    } else if (follows ? *line == ':' : *line == '+') {
      answers++;
    }
    line = stop + 1;
  }
  connection->filled = (size_t)(end - line);
  memmove(connection->in, line, connection->filled);
  return answers;
}

int main(int argc, char **argv) {
  if (argc != 6) return 2;
  int port = atoi(argv[1]), writers = atoi(argv[2]), count = atoi(argv[3]);
  double seconds = atof(argv[4]);
  follows = strcmp(argv[5], "notify") == 0;
  if (count > writers) count = writers;
  if (count < 1 || count > CONNECTIONS_MAX) return 2;
  int poll = epoll_create1(0);
  if (follows) {
    follower.fd = dial(port);
    const char *subscribe = "*2\r\n$9\r\nSUBSCRIBE\r\n$5\r\nstore\r\n";
    put(follower.fd, subscribe, strlen(subscribe));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &follower};
    epoll_ctl(poll, EPOLL_CTL_ADD, follower.fd, &event);
    usleep(50000);
  }
  static char out[1 << 20];
  for (int i = 0, next = 0; i < count; i++) {
    struct connection *connection = &connections[i];
    connection->fd = dial(port);
    connection->first = next;
    connection->writers = writers / count + (i < writers % count);
    next += connection->writers;
    connection->sent = calloc((size_t)connection->writers, sizeof(uint64_t));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    epoll_ctl(poll, EPOLL_CTL_ADD, connection->fd, &event);
    size_t length = 0;
    for (int writer = 0; writer < connection->writers; writer++) {
      connection->sent[writer] = now();
      length += request(out + length, connection->first + writer, connection->sent[writer]);
    }
    put(connection->fd, out, length);
  }
  uint64_t begun = now() + 1000000000u, end = begun + (uint64_t)(seconds * 1e9), answered = 0;
  struct epoll_event events[256];
  for (uint64_t time = now(); time < end; time = now()) {
    isMeasuring = time >= begun;
    int ready = epoll_wait(poll, events, 256, 100);
    time = now();
    for (int i = 0; i < ready; i++) {
      struct connection *connection = events[i].data.ptr;
      int answers = take(connection, connection == &follower, time);
      size_t length = 0;
      for (int j = 0; j < answers; j++) {
        int writer = connection->head;
        connection->head = (writer + 1) % connection->writers;
        if (isMeasuring) {
          note(replies, time - connection->sent[writer]);
          answered++;
        }
        connection->sent[writer] = now();
        length += request(out + length, connection->first + writer, connection->sent[writer]);
      }
      if (length > 0) put(connection->fd, out, length);
    }
  }
  printf("%.0f %.0f %.0f %.0f %.0f\n", (double)answered / seconds, percentile(replies, .5), percentile(replies, .99),
         percentile(notified, .5), percentile(notified, .99));
  return 0;
}
