/* A load generator on one thread: asks over keep-alive connections, reads answers to their end, prints JSON.

   Closed loop: N connections, each asks again as soon as its answer is whole. Fixed rate: a request every 1/RATE s,
   on whichever connection is free, else on a new one. Requests are the same bytes but for eight '#' in the body, which
   become the request's number. Tokens are '@' and the nanoseconds at which they were made (see backend.c).

   Usage: load --port P --body FILE [--key K] --seconds S (--connections N | --rate R)
          load --port P --body FILE [--key K] --rate R --hold N     opens N streams, says so, holds them until SIGTERM */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, HEAD_MAX = 16384, CONNECTIONS_MAX = 8192 };
static const int64_t SECOND = 1000000000, PATIENCE = 15 * 1000000000LL;

typedef struct {
  int64_t *values;
  size_t len, cap;
} Series;

typedef enum { LENGTH, CHUNKED, UNTIL_CLOSE } Framing;

typedef struct {
  int fd;
  bool busy, in_body, in_number, is_good, closes;
  char *request;
  size_t sent;
  char head[HEAD_MAX];
  size_t head_len;
  Framing framing;
  long left;                /* of the body, or of the chunk */
  char line[32];            /* of a chunk's size */
  int line_len, number_len, tokens;
  int64_t number, began, first;
} Conn;

static struct {
  int port, connections, hold;
  double seconds, rate;
  const char *key;
} options;

static int epoll_fd;
static char *request;
static size_t request_len, mark_at;
static Conn *conns[CONNECTIONS_MAX];
static Conn *idle[CONNECTIONS_MAX];
static int n_conns, n_idle, n_busy;
static int64_t began, ends, overrun; /* overrun: how late this program came to do anything, at worst */
static long sent, completed, errors, non_2xx;
static int tokens_min = -1, tokens_max, n_begun;
static Series latencies, first_tokens, token_ages, delays;

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * SECOND + now.tv_nsec;
}

static void note(Series *to, int64_t value) {
  if (to->len == to->cap) {
    to->cap = to->cap ? to->cap * 2 : 65536;
    to->values = realloc(to->values, to->cap * sizeof *to->values);
    if (!to->values) fail("realloc");
  }
  to->values[to->len++] = value;
}

/* Asking. */

static void watch(Conn *conn, int operation, bool to_write) {
  struct epoll_event event = {.events = EPOLLIN | (to_write ? EPOLLOUT : 0), .data.ptr = conn};
  if (epoll_ctl(epoll_fd, operation, conn->fd, &event)) fail("epoll_ctl");
}

static void dial(Conn *conn) {
  int on = 1;
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)options.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  conn->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP);
  if (conn->fd < 0) fail("socket");
  setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(conn->fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) fail("connect");
  watch(conn, EPOLL_CTL_ADD, true);
}

static Conn *new_conn(void) {
  if (n_conns == CONNECTIONS_MAX) fail("too many connections");
  Conn *conn = calloc(1, sizeof *conn);
  if (!conn || !(conn->request = malloc(request_len))) fail("malloc");
  memcpy(conn->request, request, request_len);
  conns[n_conns++] = conn;
  dial(conn);
  return conn;
}

static bool push(Conn *conn) {
  while (conn->sent < request_len) {
    ssize_t n = send(conn->fd, conn->request + conn->sent, request_len - conn->sent, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) {
      watch(conn, EPOLL_CTL_MOD, true);
      return true;
    }
    if (n < 0) return false;
    conn->sent += (size_t)n;
  }
  return true;
}

static void over(Conn *conn, bool is_good);

static void ask(Conn *conn) {
  char number[24];
  snprintf(number, sizeof number, "%08ld", sent % 100000000);
  memcpy(conn->request + mark_at, number, 8);
  conn->busy = true;
  conn->in_body = conn->in_number = conn->closes = false;
  conn->sent = conn->head_len = 0;
  conn->tokens = 0;
  conn->first = 0;
  conn->began = now_ns();
  n_busy++;
  sent++;
  if (!push(conn)) over(conn, false);
}

static void redial(Conn *conn) {
  close(conn->fd);
  dial(conn);
}

static void over(Conn *conn, bool is_good) {
  int64_t now = now_ns();
  conn->busy = false;
  n_busy--;
  if (is_good) {
    completed++;
    note(&latencies, now - conn->began);
    if (conn->first) note(&first_tokens, conn->first - conn->began);
    if (tokens_min < 0 || conn->tokens < tokens_min) tokens_min = conn->tokens;
    if (conn->tokens > tokens_max) tokens_max = conn->tokens;
  } else {
    errors++;
  }
  if (!is_good || conn->closes) redial(conn);
  if (options.rate > 0) idle[n_idle++] = conn;
  else if (now < ends) ask(conn);
}

/* Reading. */

static void end_number(Conn *conn, int64_t now) {
  conn->in_number = false;
  if (conn->number_len < 12) return;
  if (!conn->tokens++) {
    conn->first = now;
    n_begun++;
  }
  note(&token_ages, now - conn->number);
}

static void read_tokens(Conn *conn, const char *data, size_t len, int64_t now) {
  const char *end = data + len;
  while (data < end) {
    if (!conn->in_number) {
      data = memchr(data, '@', (size_t)(end - data));
      if (!data) return;
      data++;
      conn->in_number = true;
      conn->number = conn->number_len = 0;
    }
    for (; data < end && *data >= '0' && *data <= '9'; data++, conn->number_len++)
      conn->number = conn->number * 10 + (*data - '0');
    if (data < end) end_number(conn, now);
  }
}

static void read_head(Conn *conn) {
  conn->head[conn->head_len] = 0;
  int status = strncmp(conn->head, "HTTP/1.1 ", 9) ? 0 : atoi(conn->head + 9);
  conn->is_good = status >= 200 && status < 300;
  if (!conn->is_good) non_2xx++;
  conn->framing = UNTIL_CLOSE;
  for (char *line = conn->head; (line = strstr(line, "\r\n")); ) {
    line += 2;
    if (!strncasecmp(line, "content-length:", 15)) {
      conn->framing = LENGTH;
      conn->left = atol(line + 15);
    } else if (!strncasecmp(line, "transfer-encoding: chunked", 26)) {
      conn->framing = CHUNKED;
      conn->left = 0;
      conn->line_len = 0;
    } else if (!strncasecmp(line, "connection: close", 17)) {
      conn->closes = true;
    }
  }
  conn->in_body = true;
}

/* As far as the end of the head; what is left is body. */
static size_t take_head(Conn *conn, const char *data, size_t len) {
  size_t at = 0;
  while (at < len && conn->head_len < HEAD_MAX - 1) {
    conn->head[conn->head_len++] = data[at++];
    if (conn->head_len >= 4 && !memcmp(conn->head + conn->head_len - 4, "\r\n\r\n", 4)) {
      read_head(conn);
      break;
    }
  }
  return at;
}

/* One piece of a chunked body: a line with a size, or so much of a chunk. True at the end of it all. */
static bool take_chunked(Conn *conn, const char **data, const char *end, int64_t now) {
  if (conn->left > 2) {
    size_t n = (size_t)(end - *data) < (size_t)conn->left - 2 ? (size_t)(end - *data) : (size_t)conn->left - 2;
    read_tokens(conn, *data, n, now);
    conn->left -= (long)n;
    *data += n;
    return false;
  }
  char byte = *(*data)++;
  if (conn->left > 0) { /* the line end after a chunk */
    conn->left--;
    return false;
  }
  if (conn->line_len < 30) conn->line[conn->line_len++] = byte;
  if (byte != '\n') return false;
  conn->line[conn->line_len] = 0;
  bool is_last = conn->line[0] == '0' && conn->line[1] == '\r';
  bool is_end = conn->line_len == 2 && conn->left == -1;
  conn->left = is_last ? -1 : conn->left == -1 ? -1 : strtol(conn->line, NULL, 16) + 2;
  conn->line_len = 0;
  return is_end;
}

static bool take_body(Conn *conn, const char *data, size_t len, int64_t now) {
  const char *end = data + len;
  if (conn->framing == CHUNKED) {
    while (data < end)
      if (take_chunked(conn, &data, end, now)) return true;
    return false;
  }
  read_tokens(conn, data, len, now);
  if (conn->framing == UNTIL_CLOSE) return false;
  conn->left -= (long)len;
  return conn->left <= 0;
}

static void receive(Conn *conn) {
  static char data[1 << 18];
  ssize_t got = recv(conn->fd, data, sizeof data, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    if (conn->busy) over(conn, conn->in_body && conn->is_good && conn->framing == UNTIL_CLOSE && !got);
    else redial(conn);
    return;
  }
  if (!conn->busy) return;
  int64_t now = now_ns();
  size_t at = conn->in_body ? 0 : take_head(conn, data, (size_t)got);
  if (!conn->in_body) return;
  bool is_empty = conn->framing == LENGTH && conn->left == 0;
  if (is_empty || (at < (size_t)got && take_body(conn, data + at, (size_t)got - at, now))) over(conn, conn->is_good);
}

static void act(Conn *conn, uint32_t events) {
  if (events & EPOLLOUT) {
    watch(conn, EPOLL_CTL_MOD, false);
    if (conn->busy && !push(conn)) {
      over(conn, false);
      return;
    }
  }
  if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(conn);
}

/* The run. */

static int64_t ask_what_is_due(int64_t now) {
  static long asked;
  for (;;) {
    int64_t due = began + (int64_t)((double)asked * 1e9 / options.rate);
    bool is_last = options.hold ? asked >= options.hold : due >= ends;
    if (is_last) return -1;
    if (due > now) return due - now;
    note(&delays, now - due);
    asked++;
    ask(n_idle ? idle[--n_idle] : new_conn());
  }
}

static void tell_when_held(void) {
  static bool told;
  if (!options.hold || told || n_begun < options.hold) return;
  told = true;
  printf("{\"held\": %d}\n", options.hold);
  fflush(stdout);
}

static void run(void) {
  struct epoll_event events[EVENTS];
  for (int64_t due = now_ns();;) {
    int64_t now = now_ns(), wait = SECOND / 10;
    if (now - due > overrun) overrun = now - due;
    if (options.rate > 0) {
      int64_t next = ask_what_is_due(now);
      wait = next < 0 ? wait : next;
    }
    if (!options.hold && now >= ends && (!n_busy || now > ends + PATIENCE)) return;
    struct timespec patience = {.tv_sec = wait / SECOND, .tv_nsec = wait % SECOND};
    due = now + wait;
    int n = epoll_pwait2(epoll_fd, events, EVENTS, &patience, NULL);
    for (int i = 0; i < n; i++) act(events[i].data.ptr, events[i].events);
    tell_when_held();
  }
}

/* The report. */

static int by_value(const void *left, const void *right) {
  int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
  return (a > b) - (a < b);
}

static void print_series(const char *name, Series *of) {
  qsort(of->values, of->len, sizeof *of->values, by_value);
  printf("\"%s\": ", name);
  if (!of->len) {
    printf("null, ");
    return;
  }
  double p50 = (double)of->values[of->len / 2], p99 = (double)of->values[of->len * 99 / 100];
  printf("{\"p50\": %.4f, \"p99\": %.4f, \"max\": %.4f}, ", p50 / 1e6, p99 / 1e6, (double)of->values[of->len - 1] / 1e6);
}

static void report(double elapsed_s) {
  errors += n_busy; /* still unanswered */
  printf("{\"seconds\": %.4f, \"sent\": %ld, \"completed\": %ld, \"per_s\": %.2f, ", elapsed_s, sent, completed,
         (double)completed / elapsed_s);
  printf("\"errors\": %ld, \"non_2xx\": %ld, \"connections\": %d, ", errors, non_2xx, n_conns);
  printf("\"overrun_ms\": %.3f, ", (double)overrun / 1e6);
  print_series("latency_ms", &latencies);
  print_series("first_token_ms", &first_tokens);
  print_series("token_ms", &token_ages);
  print_series("delay_ms", &delays);
  printf("\"tokens\": %zu, \"tokens_min\": %d, \"tokens_max\": %d}\n", token_ages.len, tokens_min, tokens_max);
}

static void read_request(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) fail(path);
  static char body[4 << 20];
  size_t len = fread(body, 1, sizeof body, file);
  fclose(file);
  request = malloc(len + 1024);
  if (!request) fail("malloc");
  int head = snprintf(request, 1024,
                      "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nauthorization: Bearer %s\r\n"
                      "content-type: application/json\r\ncontent-length: %zu\r\n\r\n",
                      options.port, options.key, len);
  memcpy(request + head, body, len);
  request_len = (size_t)head + len;
  char *mark = memmem(request, request_len, "########", 8);
  if (!mark) {
    fprintf(stderr, "%s has no ######## for the request's number\n", path);
    exit(2);
  }
  mark_at = (size_t)(mark - request);
}

static void read_options(int argc, char **argv) {
  static const struct option known[] = {
      {"port", required_argument, NULL, 'p'},  {"body", required_argument, NULL, 'b'},
      {"key", required_argument, NULL, 'k'},   {"seconds", required_argument, NULL, 's'},
      {"rate", required_argument, NULL, 'r'},  {"connections", required_argument, NULL, 'c'},
      {"hold", required_argument, NULL, 'h'},  {NULL, 0, NULL, 0}};
  const char *body = NULL;
  options.key = "none";
  for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
    if (c == 'p') options.port = atoi(optarg);
    else if (c == 'b') body = optarg;
    else if (c == 'k') options.key = optarg;
    else if (c == 's') options.seconds = atof(optarg);
    else if (c == 'r') options.rate = atof(optarg);
    else if (c == 'c') options.connections = atoi(optarg);
    else if (c == 'h') options.hold = atoi(optarg);
    else exit(2);
  }
  bool is_timed = options.hold || options.seconds > 0;
  if (!options.port || !body || !is_timed || (options.rate > 0) == (options.connections > 0)) {
    fprintf(stderr, "usage: load --port P --body FILE [--key K] --seconds S (--connections N | --rate R [--hold N])\n");
    exit(2);
  }
  read_request(body);
}

int main(int argc, char **argv) {
  read_options(argc, argv);
  signal(SIGPIPE, SIG_IGN);
  epoll_fd = epoll_create1(0);
  if (epoll_fd < 0) fail("epoll_create1");
  began = now_ns();
  ends = began + (int64_t)(options.seconds * 1e9);
  for (int i = 0; i < options.connections; i++) ask(new_conn());
  run();
  report((double)(now_ns() - began) / 1e9);
  return 0;
}
