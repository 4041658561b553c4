/* The thread around the watchlist. One mutex guards the list; it is never held across a wait. */
#include "vgpu/scheduler.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <mutex>
#include <new>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "watchlist.h"

namespace {
constexpr int BATCH = 64;
} // namespace

struct vgpu_scheduler {
    std::mutex mutex;
    vgpu::Watchlist watchlist;
    pthread_t thread;
    /* Two epoll sets: keys are the caller's and may be any number, so no value is left to tell the stop event from a process. */
    int processes = -1; /* the pidfds; data is the key */
    int outer = -1;     /* `processes` and `stop` */
    int stop = -1;
    int event = -1;
};

namespace {

void close_all(vgpu_scheduler *scheduler) {
    for (int fd : {scheduler->processes, scheduler->outer, scheduler->stop, scheduler->event})
        if (fd >= 0)
            close(fd);
}

void raise_event(vgpu_scheduler *scheduler) {
    const uint64_t one = 1;
    /* It cannot block or fail in a way that matters: a counter that is full is readable as well. */
    ssize_t ignored = write(scheduler->event, &one, sizeof one);
    (void)ignored;
}

void reap(vgpu_scheduler *scheduler) {
    epoll_event events[BATCH];
    /* Under the lock from the look to the clearing: after unwatch has returned, no stale event may touch a page that is unmapped. */
    std::lock_guard<std::mutex> guard(scheduler->mutex);
    const int count = epoll_wait(scheduler->processes, events, BATCH, 0);
    for (int i = 0; i < count; ++i) {
        const int pidfd = scheduler->watchlist.died(events[i].data.u64);
        if (pidfd >= 0)
            epoll_ctl(scheduler->processes, EPOLL_CTL_DEL, pidfd, nullptr);
    }
    if (scheduler->watchlist.any_dead())
        raise_event(scheduler);
}

void *run(void *argument) {
    auto *scheduler = static_cast<vgpu_scheduler *>(argument);
    pthread_setname_np(pthread_self(), "vgpu-scheduler");
    for (;;) {
        epoll_event events[2];
        const int count = epoll_wait(scheduler->outer, events, 2, -1);
        if (count < 0 && errno != EINTR)
            return nullptr;
        for (int i = 0; i < count; ++i) {
            if (events[i].data.fd == scheduler->stop)
                return nullptr;
            reap(scheduler);
        }
    }
}

int add(int set, int fd, epoll_data data) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data = data;
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

int start(vgpu_scheduler *scheduler) {
    scheduler->processes = epoll_create1(EPOLL_CLOEXEC);
    scheduler->outer = epoll_create1(EPOLL_CLOEXEC);
    scheduler->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    scheduler->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (scheduler->processes < 0 || scheduler->outer < 0 || scheduler->stop < 0 || scheduler->event < 0)
        return -errno;
    for (int fd : {scheduler->processes, scheduler->stop}) {
        epoll_data data{};
        data.fd = fd;
        if (const int error = add(scheduler->outer, fd, data))
            return error;
    }
    /* Signals are the Python main thread's. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&scheduler->thread, nullptr, run, scheduler);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return -error;
}

} // namespace

#define VGPU_EXPORT __attribute__((visibility("default")))

VGPU_EXPORT int vgpu_scheduler_create(vgpu_scheduler **result) {
    auto *scheduler = new (std::nothrow) vgpu_scheduler;
    if (!scheduler)
        return -ENOMEM;
    if (const int error = start(scheduler)) {
        close_all(scheduler);
        delete scheduler;
        return error;
    }
    *result = scheduler;
    return 0;
}

VGPU_EXPORT void vgpu_scheduler_destroy(vgpu_scheduler *scheduler) {
    if (!scheduler)
        return;
    const uint64_t one = 1;
    ssize_t ignored = write(scheduler->stop, &one, sizeof one);
    (void)ignored;
    pthread_join(scheduler->thread, nullptr);
    scheduler->watchlist.each([](const vgpu::Watchlist::Entry &entry) { close(entry.pidfd); });
    close_all(scheduler);
    delete scheduler;
}

VGPU_EXPORT int vgpu_scheduler_event_fd(const vgpu_scheduler *scheduler) { return scheduler->event; }

VGPU_EXPORT int vgpu_scheduler_watch(vgpu_scheduler *scheduler, uint64_t key, int pidfd, vgpu_control *control, uint32_t slot) {
    if (control && slot >= VGPU_MAX_PROCESSES)
        return -EINVAL;
    const int own = fcntl(pidfd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return -errno;
    std::lock_guard<std::mutex> guard(scheduler->mutex);
    if (!scheduler->watchlist.add(key, own, control, slot)) {
        close(own);
        return -EEXIST;
    }
    epoll_data data{};
    data.u64 = key;
    const int error = add(scheduler->processes, own, data);
    if (error) {
        scheduler->watchlist.remove(key);
        close(own);
    }
    return error;
}

VGPU_EXPORT int vgpu_scheduler_unwatch(vgpu_scheduler *scheduler, uint64_t key) {
    std::lock_guard<std::mutex> guard(scheduler->mutex);
    const vgpu::Watchlist::Entry entry = scheduler->watchlist.remove(key);
    if (entry.pidfd < 0)
        return -ENOENT;
    if (!entry.dead)
        epoll_ctl(scheduler->processes, EPOLL_CTL_DEL, entry.pidfd, nullptr);
    close(entry.pidfd);
    return 0;
}

VGPU_EXPORT size_t vgpu_scheduler_take(vgpu_scheduler *scheduler, uint64_t *keys, size_t capacity) {
    std::lock_guard<std::mutex> guard(scheduler->mutex);
    uint64_t counter;
    ssize_t ignored = read(scheduler->event, &counter, sizeof counter);
    (void)ignored;
    const size_t count = scheduler->watchlist.take(keys, capacity, [](int pidfd) { close(pidfd); });
    if (scheduler->watchlist.any_dead())
        raise_event(scheduler);
    return count;
}
