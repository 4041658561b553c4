#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "lock.h"
#include "log.h"

namespace vgpu {
namespace {

const int HANDSHAKE_MS = 400;     /* each of connect and attach: cuInit stays below a second */
const int CONNECT_RETRY_MS = 300; /* an arbiter that is being restarted */
const int UNREACHABLE_MS = 5000;  /* how long a request waits for a lost arbiter */
const int POLL_MS = 50;           /* how often a waiting request looks at the cancel counter and the connection */
const int BACKOFF_MAX_MS = 1000;

int64_t now_ms() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t(t.tv_sec) * 1000 + t.tv_nsec / 1000000;
}

void pause_ms(int ms) {
    timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, nullptr);
}

void futex_wait(std::atomic<uint32_t> *word, uint32_t expected, int ms) {
    timespec t = {ms / 1000, ms % 1000 * 1000000L};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &t, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t> *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

/* Moves a descriptor out of the way of programs that count on low numbers, and remembers what it is. */
Descriptor keep(int fd) {
    rlimit limit;
    int lowest = 0;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > 256) lowest = limit.rlim_cur < 1024 ? int(limit.rlim_cur) - 128 : 896;
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, lowest);
    if (moved >= 0) {
        close(fd);
        fd = moved;
    }
    struct stat st = {};
    fstat(fd, &st);
    return {fd, st.st_dev, st.st_ino};
}

bool still_ours(const Descriptor &d) {
    struct stat st;
    return d.fd >= 0 && fstat(d.fd, &st) == 0 && st.st_dev == d.device && st.st_ino == d.inode;
}

void close_ours(Descriptor &d) {
    if (still_ours(d)) close(d.fd);
    d.fd = -1;
}

void set_timeouts(int fd, int receive_ms, int send_ms) {
    timeval receive = {receive_ms / 1000, receive_ms % 1000 * 1000}, send = {send_ms / 1000, send_ms % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &receive, sizeof receive);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send, sizeof send);
}

}  // namespace

enum RequestState : uint32_t { WAITING, ANSWERED, ABANDONED };

struct Channel::Request {
    Request *next;
    vgpu_request packet;
    std::atomic<uint32_t> state;
    uint16_t status;
    char reason[VGPU_REASON_LENGTH];
};

vgpu_request Channel::packet(uint16_t op, unsigned part, uint64_t bytes, uint16_t flags) const {
    vgpu_request p = {};
    p.magic = VGPU_PROTOCOL_MAGIC;
    p.op = op;
    p.flags = flags;
    p.device = part;
    p.slot = slot_;
    p.bytes = bytes;
    return p;
}

/* Under mutex_ (or before the helper thread exists). */
bool Channel::connect() {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path_, sizeof path_);
    int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    set_timeouts(fd, HANDSHAKE_MS, HANDSHAKE_MS);
    if (::connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return false;
    }
    socket_ = keep(fd);
    return true;
}

/* ATTACH and its answer. The first time the answer brings the page; again, we send ours along. */
bool Channel::greet(bool again, uint32_t *slot) {
    vgpu_request request = packet(VGPU_OP_ATTACH, 0, 0, again ? VGPU_ATTACH_AGAIN : 0);
    request.id = ++next_id_;
    memcpy(request.token, token_, sizeof token_);
    union {
        char buffer[CMSG_SPACE(sizeof(int))];
        cmsghdr align;
    } control = {};
    iovec data = {&request, sizeof request};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (again) {
        message.msg_control = control.buffer;
        message.msg_controllen = sizeof control.buffer;
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &page_fd_.fd, sizeof(int));
    }
    if (sendmsg(socket_.fd, &message, MSG_NOSIGNAL) != ssize_t(sizeof request)) return false;

    vgpu_reply reply = {};
    data = {&reply, sizeof reply};
    message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.buffer;
    message.msg_controllen = sizeof control.buffer;
    ssize_t got = recvmsg(socket_.fd, &message, MSG_CMSG_CLOEXEC);
    int fd = -1;
    for (cmsghdr *h = got >= 0 ? CMSG_FIRSTHDR(&message) : nullptr; h; h = CMSG_NXTHDR(&message, h))
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(h), sizeof fd);
    bool good = got == ssize_t(sizeof reply) && reply.magic == VGPU_PROTOCOL_MAGIC && reply.op == VGPU_OP_ATTACH;
    if (good && reply.status != VGPU_STATUS_OK) {
        reply.reason[VGPU_REASON_LENGTH - 1] = 0;
        log("the arbiter refused to attach (status %d): %s", reply.status, reply.reason);
        if (reply.status == VGPU_STATUS_UNKNOWN_TENANT) refused_.store(true);
        good = false;
    }
    if (good && !again) {
        good = fd >= 0 && reply.slot < VGPU_MAX_PROCESSES;
        if (good) {
            page_fd_ = keep(fd);
            fd = -1;
            *slot = reply.slot;
        }
    }
    if (fd >= 0) close(fd);
    return good;
}

vgpu_control *Channel::attach(const char *path, const char *token, uint32_t *slot) {
    socket_.fd = page_fd_.fd = -1;
    if (strlen(path) >= sizeof path_ || strlen(token) > sizeof token_) {
        log("VGPU_SHIM_SOCKET or VGPU_TOKEN is too long");
        return nullptr;
    }
    strcpy(path_, path);
    memcpy(token_, token, strlen(token));
    for (int64_t deadline = now_ms() + CONNECT_RETRY_MS; !connect(); pause_ms(20)) {
        if ((errno == ECONNREFUSED || errno == ENOENT) && now_ms() < deadline) continue;
        log("cannot reach the arbiter at %s: %s; unmanaged", path_, strerror(errno));
        return nullptr;
    }
    void *mapped = MAP_FAILED;
    struct stat st;
    if (greet(false, slot) && fstat(page_fd_.fd, &st) == 0 && size_t(st.st_size) >= sizeof(vgpu_control))
        mapped = mmap(nullptr, sizeof(vgpu_control), PROT_READ | PROT_WRITE, MAP_SHARED, page_fd_.fd, 0);
    if (mapped != MAP_FAILED) {
        page_ = static_cast<vgpu_control *>(mapped);
        slot_ = *slot;
        if (page_->magic == VGPU_CONTROL_MAGIC && page_->version == VGPU_CONTROL_VERSION && page_->size == sizeof(vgpu_control) &&
            start_thread())
            return page_;
        log("the control page has another version, or no thread could be started; unmanaged");
        munmap(mapped, sizeof(vgpu_control));
    }
    drop();
    return nullptr;
}

void Channel::drop() {
    close_ours(socket_);
    close_ours(page_fd_);
}

bool Channel::start_thread() {
    set_timeouts(socket_.fd, 0, HANDSHAKE_MS);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* the thread inherits it: the program's signals are none of its business */
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    bool started = pthread_create(&thread, &attributes, run, this) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    return started;
}

void *Channel::run(void *self) {
    prctl(PR_SET_NAME, "vgpu", 0, 0, 0);
    Channel *channel = static_cast<Channel *>(self);
    do {
        channel->read_replies();
    } while (channel->reconnect());
    return nullptr;
}

void Channel::read_replies() {
    vgpu_reply reply;
    for (;;) {
        ssize_t got = recv(socket_.fd, &reply, sizeof reply, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return;
        if (got == ssize_t(sizeof reply) && reply.magic == VGPU_PROTOCOL_MAGIC) answer(reply);
    }
}

void Channel::answer(const vgpu_reply &reply) {
    Lock lock(mutex_);
    for (Request *r = pending_; r; r = r->next) {
        if (r->packet.id != reply.id) continue;
        if (r->state.load() == ABANDONED) {
            /* Nobody waits any more: what was granted must not stay granted. */
            if (reply.op == VGPU_OP_RESERVE && reply.status == VGPU_STATUS_OK)
                send(packet(VGPU_OP_COMMIT, r->packet.device, r->packet.bytes, 0));
            unlink(r);
            free(r);
            return;
        }
        r->status = reply.status;
        memcpy(r->reason, reply.reason, sizeof r->reason);
        r->reason[sizeof r->reason - 1] = 0;
        r->state.store(ANSWERED, std::memory_order_release);
        futex_wake(&r->state);
        return;
    }
}

bool Channel::reconnect() {
    {
        Lock lock(mutex_);
        disconnected_ms_.store(now_ms());
        close_ours(socket_);
    }
    for (int backoff = POLL_MS; !refused_.load(); backoff = backoff * 2 < BACKOFF_MAX_MS ? backoff * 2 : BACKOFF_MAX_MS) {
        pause_ms(backoff);
        Lock lock(mutex_);
        if (!still_ours(page_fd_)) {
            log("the control page's descriptor was closed by the program; the arbiter cannot be joined again");
            break;
        }
        if (!connect()) continue;
        if (!greet(true, nullptr)) {
            close_ours(socket_);
            continue;
        }
        set_timeouts(socket_.fd, 0, HANDSHAKE_MS);
        disconnected_ms_.store(0);
        /* Questions that the old arbiter never answered; its grants went with it, so abandoned ones are simply forgotten. */
        for (Request *r = pending_, *next; r; r = next) {
            next = r->next;
            if (r->state.load() == WAITING) send(r->packet);
            if (r->state.load() != ABANDONED) continue;
            unlink(r);
            free(r);
        }
        log("joined the arbiter again");
        return true;
    }
    refused_.store(true);
    return false;
}

bool Channel::send(const vgpu_request &packet) {
    return socket_.fd >= 0 && ::send(socket_.fd, &packet, sizeof packet, MSG_NOSIGNAL) == ssize_t(sizeof packet);
}

void Channel::unlink(Request *request) {
    for (Request **link = &pending_; *link; link = &(*link)->next) {
        if (*link != request) continue;
        *link = request->next;
        return;
    }
}

void Channel::commit(unsigned part, uint64_t bytes) {
    Lock lock(mutex_);
    send(packet(VGPU_OP_COMMIT, part, bytes, 0));
}

Answer Channel::ask(uint16_t op, unsigned part, uint64_t bytes, uint16_t flags, int timeout_ms, bool cancellable) {
    Request *request = static_cast<Request *>(calloc(1, sizeof(Request)));
    if (!request) return Answer::UNREACHABLE;
    uint32_t cancel = __atomic_load_n(&page_->cancel, __ATOMIC_ACQUIRE);
    int64_t deadline = now_ms() + timeout_ms;
    request->packet = packet(op, part, bytes, flags);
    {
        Lock lock(mutex_);
        request->packet.id = ++next_id_;
        request->next = pending_;
        pending_ = request;
        send(request->packet); /* when it fails, the reconnect sends it */
    }
    Answer result = Answer::UNREACHABLE;
    while (request->state.load(std::memory_order_acquire) == WAITING) {
        int64_t now = now_ms(), since = disconnected_ms_.load();
        if (cancellable && __atomic_load_n(&page_->cancel, __ATOMIC_ACQUIRE) != cancel) {
            result = Answer::CANCELLED;
            break;
        }
        if (now >= deadline || refused_.load() || (since && now - since > UNREACHABLE_MS)) break;
        futex_wait(&request->state, WAITING, POLL_MS);
    }
    Lock lock(mutex_);
    if (request->state.load(std::memory_order_acquire) == WAITING) {
        request->state.store(ABANDONED); /* freed when its answer comes, or at the next reconnect */
        return result;
    }
    unlink(request);
    if (request->status != VGPU_STATUS_OK) log("denied: %s", request->reason);
    result = request->status == VGPU_STATUS_OK ? Answer::OK : Answer::DENIED;
    free(request);
    return result;
}

}  // namespace vgpu
