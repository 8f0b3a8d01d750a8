/* What an agent runs in a container to see what holds there: limits, the egress table, the disk.
 *
 * A program of a few kilobytes that needs no library, so that an image is made of nothing but it. Its arguments are
 * tasks, done in their order; each prints one line. `native/probe.py` compiles it into the package.
 *
 *   alloc MIB              touches so much memory         "alloc MIB"
 *   fork MAX               forks until that is refused    "fork COUNT"
 *   spin MS                computes for so long           "spin CPU_US WALL_US"
 *   write PATH MIB         writes so much to a file       "write MIB ERRNO"
 *   connect MS ADDRESS PORT   one TCP connection          "connect ADDRESS PORT connected|refused|timeout|ERRNO"
 *   listen PORT            accepts and closes             "listen PORT", and stays
 *   find PATH WORD         a number of a file             "find WORD NUMBER", -1 where there is none
 *   wait MS                does nothing                   "wait"
 *   say TEXT, complain TEXT   to stdout, to stderr        TEXT
 *   env NAME               a variable of its environment  "env NAME=VALUE"
 *   size                   of its terminal                "size COLUMNS ROWS"
 *   echo                   copies its input to its output until that ends
 *   exit CODE              ends
 */
#ifndef SOURCE
#define SOURCE "unknown"
#endif
/* A digest of this file: a test sees whether the package's program is of it. Without tasks it is printed. */
static const char source[] = "source:" SOURCE;

typedef unsigned long word;
typedef unsigned char byte;

#if defined(__x86_64__)
enum { READ = 0, WRITE = 1, CLOSE = 3, MMAP = 9, FSYNC = 74, SOCKET = 41, CONNECT = 42, ACCEPT4 = 288, BIND = 49,
       LISTEN = 50, SETSOCKOPT = 54, GETSOCKOPT = 55, CLONE = 56, IOCTL = 16, WAIT4 = 61, KILL = 62, CLOCK_GETTIME = 228,
       EXIT_GROUP = 231, OPENAT = 257, PPOLL = 271 };

static long call(long number, word a, word b, word c, word d, word e, word f) {
    long result;
    register word r10 __asm__("r10") = d;
    register word r8 __asm__("r8") = e;
    register word r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
#elif defined(__aarch64__)
enum { READ = 63, WRITE = 64, CLOSE = 57, MMAP = 222, FSYNC = 82, SOCKET = 198, CONNECT = 203, ACCEPT4 = 242,
       BIND = 200, LISTEN = 201, SETSOCKOPT = 208, GETSOCKOPT = 209, CLONE = 220, IOCTL = 29, WAIT4 = 260, KILL = 129,
       CLOCK_GETTIME = 113, EXIT_GROUP = 94, OPENAT = 56, PPOLL = 73 };

static long call(long number, word a, word b, word c, word d, word e, word f) {
    register word x8 __asm__("x8") = (word)number;
    register word x0 __asm__("x0") = a;
    register word x1 __asm__("x1") = b;
    register word x2 __asm__("x2") = c;
    register word x3 __asm__("x3") = d;
    register word x4 __asm__("x4") = e;
    register word x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
    return (long)x0;
}

__asm__(".globl _start\n_start:\n mov x29, #0\n mov x0, sp\n bl begin\n");
#else
#error "no such platform"
#endif

#define SYS(number, a, b, c) call(number, (word)(a), (word)(b), (word)(c), 0, 0, 0)
#define MIB (1UL << 20)
#define CHILDREN_MAX 4096

static const long EINPROGRESS_ = 115, ECONNREFUSED_ = 111;
static char line[256];
static word used;
static byte block[65536];
static int children[CHILDREN_MAX];

struct time { long s, ns; };
struct poll { int fd; short events, returned; };
struct address { unsigned short family, port; byte ip[4], zero[8]; };

void *memset(void *at, int value, word n) {
    for (volatile byte *each = at; n--; each++) *each = (byte)value;
    return at;
}

static void put(const char *text) {
    for (; *text && used < sizeof line - 2; text++) line[used++] = *text;
}

static void put_number(long number) {
    char digits[24];
    int n = 0;
    if (number < 0) { put("-"); number = -number; }
    do digits[n++] = (char)('0' + number % 10); while (number /= 10);
    while (n) { char one[2] = {digits[--n], 0}; put(one); }
}

static void put_field(long number) { put(" "); put_number(number); }

static void say_to(int fd) {
    line[used++] = '\n';
    SYS(WRITE, fd, line, used);
    used = 0;
}

static void say(void) { say_to(1); }

static void leave(int status) {
    SYS(EXIT_GROUP, status, 0, 0);
    for (;;) ;
}

static int same(const char *a, const char *b) {
    while (*a && *a == *b) { a++; b++; }
    return *a == *b;
}

static long number_of(const char *text) {
    long number = 0;
    while (*text >= '0' && *text <= '9') number = number * 10 + (*text++ - '0');
    return number;
}

static long now_us(int clock) {
    struct time t = {0, 0};
    SYS(CLOCK_GETTIME, clock, &t, 0);
    return t.s * 1000000 + t.ns / 1000;
}

static long wait_for(struct poll *what, long ms) {
    struct time t = {ms / 1000, ms % 1000 * 1000000};
    return call(PPOLL, (word)what, what ? 1 : 0, ms < 0 ? 0 : (word)&t, 0, 8, 0);
}

/* The address in network order; the last field ends at the end or at anything else. */
static struct address address_of(const char *ip, long port) {
    struct address to = {2, (unsigned short)(((port & 255) << 8) | ((port >> 8) & 255)), {0}, {0}};
    for (int i = 0; i < 4; i++) {
        to.ip[i] = (byte)number_of(ip);
        while (*ip >= '0' && *ip <= '9') ip++;
        if (*ip == '.') ip++;
    }
    return to;
}

static void do_alloc(long mib) {
    byte *at = (byte *)call(MMAP, 0, mib * MIB, 3, 0x22, (word)-1, 0);
    long done = 0;
    if ((long)at > 0 || (long)at < -4095)
        for (; done < mib; done++)
            for (word i = 0; i < MIB; i += 4096) ((volatile byte *)at)[done * MIB + i] = (byte)(done + 1);
    put("alloc"); put_field(done); say();
}

static void do_fork(long most) {
    long count = 0;
    for (; count < most && count < CHILDREN_MAX; count++) {
        long pid = call(CLONE, 17, 0, 0, 0, 0, 0);
        if (pid == 0) for (;;) wait_for(0, -1);
        if (pid < 0) break;
        children[count] = (int)pid;
    }
    put("fork"); put_field(count); say();
    for (long i = 0; i < count; i++) SYS(KILL, children[i], 9, 0);
    for (long i = 0; i < count; i++) SYS(WAIT4, children[i], 0, 0);
}

static void do_spin(long ms) {
    long wall = now_us(1), cpu = now_us(2);
    while (now_us(1) - wall < ms * 1000) ;
    put("spin"); put_field(now_us(2) - cpu); put_field(now_us(1) - wall); say();
}

static void do_write(const char *path, long mib) {
    long file = call(OPENAT, (word)-100, (word)path, 01 | 0100 | 01000, 0600, 0, 0), error = 0;
    word done = 0;
    if (file < 0) error = -file;
    while (!error && done < mib * MIB) {
        long n = SYS(WRITE, file, block, sizeof block);
        if (n < 0) error = -n; else done += n;
    }
    if (!error) error = -SYS(FSYNC, file, 0, 0);
    put("write"); put_field((long)(done / MIB)); put_field(error); say();
    if (file >= 0) SYS(CLOSE, file, 0, 0);
}

static void do_find(const char *path, const char *name) {
    long file = call(OPENAT, (word)-100, (word)path, 0, 0, 0, 0), found = -1;
    long n = file < 0 ? 0 : SYS(READ, file, block, sizeof block - 1);
    block[n < 0 ? 0 : n] = 0;
    for (const char *at = (const char *)block; *at && found < 0; at++) {
        const char *a = at, *b = name;
        while (*b && *a == *b) { a++; b++; }
        if (!*b && (*a == ' ' || *a == '\t')) found = number_of(a + 1);
    }
    put("find "); put(name); put_field(found); say();
    if (file >= 0) SYS(CLOSE, file, 0, 0);
}

static void do_connect(long ms, const char *ip, long port) {
    struct address to = address_of(ip, port);
    long fd = SYS(SOCKET, 2, 1 | 04000, 0);
    long error = fd < 0 ? fd : SYS(CONNECT, fd, &to, sizeof to);
    put("connect "); put(ip); put_field(port); put(" ");
    if (error == -EINPROGRESS_) {
        struct poll one = {(int)fd, 4, 0};
        int result = 0, size = sizeof result;
        if (wait_for(&one, ms) <= 0) { put("timeout"); error = 1; }
        else { call(GETSOCKOPT, fd, 1, 4, (word)&result, (word)&size, 0); error = -result; }
    }
    if (error == 0) put("connected");
    else if (error == -ECONNREFUSED_) put("refused");
    else if (error < 0) put_number(-error);
    say();
    if (fd >= 0) SYS(CLOSE, fd, 0, 0);
}

static void do_listen(long port) {
    struct address at = address_of("0.0.0.0", port);
    int yes = 1;
    long fd = SYS(SOCKET, 2, 1, 0);
    call(SETSOCKOPT, fd, 1, 2, (word)&yes, sizeof yes, 0);
    if (fd < 0 || SYS(BIND, fd, &at, sizeof at) < 0 || SYS(LISTEN, fd, 16, 0) < 0) leave(3);
    put("listen"); put_field(port); say();
    for (;;) {
        long taken = call(ACCEPT4, fd, 0, 0, 0, 0, 0);
        if (taken >= 0) { SYS(WRITE, taken, "probe\n", 6); SYS(CLOSE, taken, 0, 0); }
    }
}

static void do_env(char **environment, const char *name) {
    put("env ");
    for (; *environment; environment++) {
        const char *a = *environment, *b = name;
        while (*b && *a == *b) { a++; b++; }
        if (!*b && *a == '=') { put(*environment); break; }
    }
    say();
}

static void do_size(void) {
    unsigned short size[4] = {0};
    SYS(IOCTL, 0, 0x5413, size);
    put("size"); put_field(size[1]); put_field(size[0]); say();
}

static void do_echo(void) {
    long n;
    while ((n = SYS(READ, 0, block, sizeof block)) > 0) SYS(WRITE, 1, block, n);
}

__attribute__((used)) void begin(word *stack) {
    long n = (long)stack[0];
    char **words = (char **)(stack + 1);
    if (n < 2) { put(source); say(); }
    for (long i = 1; i < n;) {
        const char *task = words[i++];
        long left = n - i;
        if (same(task, "alloc") && left >= 1) { do_alloc(number_of(words[i])); i += 1; }
        else if (same(task, "fork") && left >= 1) { do_fork(number_of(words[i])); i += 1; }
        else if (same(task, "spin") && left >= 1) { do_spin(number_of(words[i])); i += 1; }
        else if (same(task, "write") && left >= 2) { do_write(words[i], number_of(words[i + 1])); i += 2; }
        else if (same(task, "connect") && left >= 3) {
            do_connect(number_of(words[i]), words[i + 1], number_of(words[i + 2]));
            i += 3;
        }
        else if (same(task, "find") && left >= 2) { do_find(words[i], words[i + 1]); i += 2; }
        else if (same(task, "listen") && left >= 1) do_listen(number_of(words[i]));
        else if (same(task, "wait") && left >= 1) { wait_for(0, number_of(words[i])); put("wait"); say(); i += 1; }
        else if (same(task, "say") && left >= 1) { put(words[i++]); say(); }
        else if (same(task, "complain") && left >= 1) { put(words[i++]); say_to(2); }
        else if (same(task, "env") && left >= 1) do_env(words + n + 1, words[i++]);
        else if (same(task, "size")) do_size();
        else if (same(task, "echo")) do_echo();
        else if (same(task, "exit") && left >= 1) leave((int)number_of(words[i]));
        else leave(2);
    }
    leave(0);
}
