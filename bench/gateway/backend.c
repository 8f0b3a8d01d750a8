/* A model server that does no work: OpenAI's chat endpoint, whole and streamed, on one thread.

   Every token is the moment at which it was made (CLOCK_MONOTONIC, nanoseconds, after an '@'), so whoever reads it knows
   how long it was under way. A streamed answer has TOKENS tokens; of the request's max_tokens, what is above TOKENS is
   the milliseconds between two of them, so that one server paces all workloads and every proxy passes the wish on.

   Usage: backend PORT */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
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

enum { TOKENS = 64, WHOLE_TOKENS = 16, EVENTS = 256, REQUEST_MAX = 8 << 20, UNSENT_MAX = 4 << 20, STREAMS_MAX = 65536 };

typedef struct {
  char *data;
  size_t len, cap;
} Buffer;

typedef struct {
  int fd;
  Buffer in, out;
  bool streaming, wants_usage, waits_to_write;
  int made, prompt_tokens, heap_at;
  int64_t pace_ns, due_ns;
} Conn;

static int epoll_fd;
static Conn *heap[STREAMS_MAX + 1];
static int heap_len;

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void append(Buffer *to, const char *data, size_t len) {
  if (to->len + len > to->cap) {
    to->cap = (to->len + len) * 2;
    to->data = realloc(to->data, to->cap);
    if (!to->data) fail("realloc");
  }
  memcpy(to->data + to->len, data, len);
  to->len += len;
}

static void drop(Buffer *from, size_t len) {
  memmove(from->data, from->data + len, from->len - len);
  from->len -= len;
}

/* When the next token of each stream is due: a heap, the earliest first. */

static void place(Conn *conn, int at) {
  heap[at] = conn;
  conn->heap_at = at;
}

static void sift(Conn *conn, int at) {
  while (at > 1 && heap[at / 2]->due_ns > conn->due_ns) {
    place(heap[at / 2], at);
    at /= 2;
  }
  for (int child; (child = 2 * at) <= heap_len; at = child) {
    if (child < heap_len && heap[child + 1]->due_ns < heap[child]->due_ns) child++;
    if (heap[child]->due_ns >= conn->due_ns) break;
    place(heap[child], at);
  }
  place(conn, at);
}

static void schedule(Conn *conn, int64_t due_ns) {
  conn->due_ns = due_ns;
  if (!conn->heap_at) {
    if (heap_len == STREAMS_MAX) fail("too many streams");
    conn->heap_at = ++heap_len;
  }
  sift(conn, conn->heap_at);
}

static void unschedule(Conn *conn) {
  int at = conn->heap_at;
  if (!at) return;
  Conn *last = heap[heap_len--];
  conn->heap_at = 0;
  if (last != conn) sift(last, at);
}

/* Sockets. */

static void end(Conn *conn) {
  unschedule(conn);
  close(conn->fd);
  free(conn->in.data);
  free(conn->out.data);
  free(conn);
}

static void watch(Conn *conn, bool to_write) {
  if (conn->waits_to_write == to_write) return;
  conn->waits_to_write = to_write;
  struct epoll_event event = {.events = EPOLLIN | (to_write ? EPOLLOUT : 0), .data.ptr = conn};
  epoll_ctl(epoll_fd, EPOLL_CTL_MOD, conn->fd, &event);
}

static bool flush(Conn *conn) {
  while (conn->out.len) {
    ssize_t sent = send(conn->fd, conn->out.data, conn->out.len, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (sent < 0) return false;
    drop(&conn->out, (size_t)sent);
  }
  watch(conn, conn->out.len > 0);
  return conn->out.len <= UNSENT_MAX;
}

static bool put(Conn *conn, const char *data, size_t len) {
  append(&conn->out, data, len);
  return flush(conn);
}

/* Answers. */

static const char EVENT[] =
    "data: {\"id\":\"chatcmpl-7d0c5bb1a2f94b6d\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\"model\":\"m\","
    "\"choices\":[{\"index\":0,\"delta\":{%s},\"logprobs\":null,\"finish_reason\":%s}]}\n\n";
static const char USAGE_EVENT[] =
    "data: {\"id\":\"chatcmpl-7d0c5bb1a2f94b6d\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\"model\":\"m\","
    "\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}}\n\n";
static const char WHOLE[] =
    "{\"id\":\"chatcmpl-7d0c5bb1a2f94b6d\",\"object\":\"chat.completion\",\"created\":1790000000,\"model\":\"m\",\"choices\":"
    "[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Sixteen tokens of an answer that nobody had to think "
    "about, always the same.\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":%d,"
    "\"total_tokens\":%d,\"completion_tokens\":%d}}";
static const char MODELS[] =
    "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\",\"created\":1790000000,\"owned_by\":\"bench\"}]}";
static const char ABOUT[] =
    "{\"model_path\":\"m\",\"model_id\":\"m\",\"served_model_name\":\"m\",\"tokenizer_path\":\"m\",\"is_generation\":true,"
    "\"status\":\"ready\",\"version\":\"0\",\"tp_size\":1,\"dp_size\":1,\"load\":0}";

static bool reply(Conn *conn, const char *status, const char *body, size_t len) {
  char head[200];
  int n = snprintf(head, sizeof head, "HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n",
                   status, len);
  append(&conn->out, head, (size_t)n);
  return put(conn, body, len);
}

static void append_chunk(Buffer *to, const char *data, size_t len) {
  char size[24];
  append(to, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", len));
  append(to, data, len);
  append(to, "\r\n", 2);
}

static void append_end(Conn *conn) {
  char event[512];
  append_chunk(&conn->out, event, (size_t)snprintf(event, sizeof event, EVENT, "", "\"stop\""));
  if (conn->wants_usage) {
    int all = conn->prompt_tokens + TOKENS;
    append_chunk(&conn->out, event, (size_t)snprintf(event, sizeof event, USAGE_EVENT, conn->prompt_tokens, all, TOKENS));
  }
  append_chunk(&conn->out, "data: [DONE]\n\n", 14);
  append(&conn->out, "0\r\n\r\n", 5);
}

/* One token, by itself in one segment, as model servers send them. */
static bool make_token(Conn *conn) {
  char delta[80], event[512];
  const char *role = conn->made ? "" : "\"role\":\"assistant\",";
  snprintf(delta, sizeof delta, "%s\"content\":\" @%lld\"", role, (long long)now_ns());
  append_chunk(&conn->out, event, (size_t)snprintf(event, sizeof event, EVENT, delta, "null"));
  conn->made++;
  if (conn->made == TOKENS) {
    append_end(conn);
    conn->streaming = false;
  }
  return flush(conn);
}

static bool step(Conn *conn) {
  do {
    if (!make_token(conn)) return false;
  } while (conn->streaming && !conn->pace_ns);
  if (!conn->streaming) unschedule(conn);
  else schedule(conn, conn->due_ns + conn->pace_ns);
  return true;
}

/* Requests. Bodies come from our own generator: a field is looked for where it may stand, not parsed. */

static const char *value_of(const char *body, size_t len, const char *name) {
  const char *found = memmem(body, len, name, strlen(name));
  if (!found) return NULL;
  found += strlen(name);
  while (found < body + len && (*found == ' ' || *found == ':')) found++;
  return found < body + len ? found : NULL;
}

static bool is_true(const char *body, size_t len, const char *name) {
  const char *value = value_of(body, len, name);
  return value && body + len - value >= 4 && !memcmp(value, "true", 4);
}

static int limit_of(const char *body, size_t len) {
  const char *names[] = {"\"max_completion_tokens\"", "\"max_tokens\""};
  for (int i = 0; i < 2; i++) {
    const char *value = value_of(body, len, names[i]);
    if (value && *value >= '0' && *value <= '9') return atoi(value);
  }
  return TOKENS;
}

static bool chat(Conn *conn, const char *body, size_t len) {
  conn->prompt_tokens = (int)(len / 4);
  if (!is_true(body, len, "\"stream\"")) {
    char whole[600];
    int n = snprintf(whole, sizeof whole, WHOLE, conn->prompt_tokens, conn->prompt_tokens + WHOLE_TOKENS, WHOLE_TOKENS);
    return reply(conn, "200 OK", whole, (size_t)n);
  }
  static const char head[] =
      "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
      "transfer-encoding: chunked\r\n\r\n";
  int above = limit_of(body, len) - TOKENS;
  conn->wants_usage = is_true(body, len, "\"include_usage\"");
  conn->streaming = true;
  conn->made = 0;
  conn->pace_ns = above > 0 ? above * 1000000LL : 0;
  conn->due_ns = now_ns();
  append(&conn->out, head, sizeof head - 1);
  return step(conn);
}

static bool answer(Conn *conn, const char *line, const char *body, size_t len) {
  if (!strncmp(line, "POST /v1/chat/completions", 25)) return chat(conn, body, len);
  if (!strncmp(line, "GET /v1/models", 14)) return reply(conn, "200 OK", MODELS, sizeof MODELS - 1);
  if (!strncmp(line, "GET /", 5)) return reply(conn, "200 OK", ABOUT, sizeof ABOUT - 1);
  return reply(conn, "404 Not Found", "{}", 2);
}

/* How long the body is; negative when that is not said in a way that is understood here. */
static long body_length(const char *head, const char *end) {
  for (const char *at = head; at && at < end; at = memchr(at, '\n', (size_t)(end - at))) {
    if (*at == '\n') at++;
    if (!strncasecmp(at, "content-length:", 15)) return atol(at + 15);
    if (!strncasecmp(at, "transfer-encoding:", 18)) return -1;
  }
  return 0;
}

static bool serve(Conn *conn) {
  while (!conn->streaming && conn->in.len) {
    char *head_end = memmem(conn->in.data, conn->in.len, "\r\n\r\n", 4);
    if (!head_end) return conn->in.len < REQUEST_MAX;
    size_t head_len = (size_t)(head_end - conn->in.data) + 4;
    long len = body_length(conn->in.data, head_end);
    if (len < 0 || len > REQUEST_MAX) return false;
    if (conn->in.len < head_len + (size_t)len) return true;
    if (!answer(conn, conn->in.data, conn->in.data + head_len, (size_t)len)) return false;
    drop(&conn->in, head_len + (size_t)len);
  }
  return true;
}

static bool receive(Conn *conn) {
  static char data[1 << 18];
  ssize_t got = recv(conn->fd, data, sizeof data, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  append(&conn->in, data, (size_t)got);
  return conn->in.len <= REQUEST_MAX && serve(conn);
}

static void accept_all(int listener) {
  int fd;
  while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Conn *conn = calloc(1, sizeof *conn);
    if (!conn) fail("calloc");
    conn->fd = fd;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
  }
}

static int listen_on(int port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP), on = 1;
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (fd < 0) fail("socket");
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4096)) fail("listen");
  return fd;
}

static void make_due_tokens(void) {
  int64_t now = now_ns();
  while (heap_len && heap[1]->due_ns <= now) {
    Conn *conn = heap[1];
    if (!step(conn) || !serve(conn)) end(conn);
  }
}

static void wait_and_act(int listener) {
  struct epoll_event events[EVENTS];
  int64_t left = heap_len ? heap[1]->due_ns - now_ns() : 0;
  left = left > 0 ? left : 0;
  struct timespec patience = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
  int n = epoll_pwait2(epoll_fd, events, EVENTS, heap_len ? &patience : NULL, NULL);
  if (n < 0 && errno != EINTR) fail("epoll_pwait2");
  for (int i = 0; i < n; i++) {
    Conn *conn = events[i].data.ptr;
    if (!conn) {
      accept_all(listener);
      continue;
    }
    bool lives = !(events[i].events & (EPOLLERR | EPOLLHUP));
    if (lives && events[i].events & EPOLLOUT) lives = flush(conn);
    if (lives && events[i].events & EPOLLIN) lives = receive(conn);
    if (!lives) end(conn);
  }
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: backend PORT\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  int listener = listen_on(atoi(argv[1]));
  epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
  if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event)) fail("epoll");
  for (;;) {
    wait_and_act(listener);
    make_due_tokens();
  }
}
