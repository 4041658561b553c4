/* The watchlist without a thread, then the thread with real processes. Exit status 0 = all expectations hold. */
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vgpu/scheduler.h"
#include "watchlist.h"

#define EXPECT(condition)                                                                                                                  \
    do {                                                                                                                                   \
        if (!(condition)) {                                                                                                                \
            std::fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition);                                                  \
            std::exit(1);                                                                                                                  \
        }                                                                                                                                  \
    } while (0)

static vgpu_control page;

static void occupy(uint32_t slot, uint32_t pid) {
    std::memset(&page, 0, sizeof page);
    page.process[slot].pid = pid;
    page.process[slot].generation = 7;
    page.process[slot + 1].pid = pid + 1;
    page.process[slot + 1].device[0].used = 11;
    page.process[slot].device[0] = {1, 2, 3, 4, {}};
    page.process[slot].device[VGPU_MAX_DEVICES - 1].used = 5;
}

static void a_death_frees_the_slot_and_nothing_else() {
    occupy(3, 100);
    vgpu::Watchlist list;
    EXPECT(list.add(42, 9, &page, 3));
    EXPECT(!list.add(42, 10, nullptr, 0));
    EXPECT(list.died(42) == 9);
    EXPECT(list.died(42) == -1);
    EXPECT(page.process[3].pid == 0 && page.process[3].generation == 7);
    EXPECT(page.process[3].device[0].used == 0 && page.process[3].device[0].granted == 0 && page.process[3].device[0].residual == 0);
    EXPECT(page.process[3].device[VGPU_MAX_DEVICES - 1].used == 0);
    EXPECT(page.process[4].pid == 101 && page.process[4].device[0].used == 11);
}

static void deaths_are_taken_in_order_and_once() {
    vgpu::Watchlist list;
    uint64_t keys[2];
    int closed = 0;
    for (int key = 1; key <= 3; ++key)
        list.add(key, key, nullptr, 0);
    list.died(2);
    list.died(3);
    list.died(1);
    EXPECT(list.take(keys, 2, [&](int) { ++closed; }) == 2 && keys[0] == 2 && keys[1] == 3 && closed == 2);
    EXPECT(list.any_dead());
    EXPECT(list.take(keys, 2, [&](int) { ++closed; }) == 1 && keys[0] == 1 && !list.any_dead());
}

static void what_is_removed_is_not_reported() {
    vgpu::Watchlist list;
    uint64_t key;
    list.add(1, 5, nullptr, 0);
    list.died(1);
    EXPECT(list.remove(1).dead);
    EXPECT(list.take(&key, 1, [](int) {}) == 0);
    EXPECT(list.remove(1).pidfd == -1);
    EXPECT(list.died(1) == -1);
}

static pid_t sleeper() {
    const pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

static bool readable(int fd, int milliseconds) {
    pollfd item{fd, POLLIN, 0};
    return poll(&item, 1, milliseconds) == 1;
}

static void a_killed_process_is_seen_within_100_ms() {
    vgpu_scheduler *scheduler;
    EXPECT(vgpu_scheduler_create(&scheduler) == 0);
    const int event = vgpu_scheduler_event_fd(scheduler);
    const pid_t first = sleeper(), second = sleeper();
    const int first_fd = syscall(SYS_pidfd_open, first, 0), second_fd = syscall(SYS_pidfd_open, second, 0);
    occupy(0, first);
    EXPECT(vgpu_scheduler_watch(scheduler, 1, first_fd, &page, 0) == 0);
    EXPECT(vgpu_scheduler_watch(scheduler, 1, first_fd, &page, 0) == -EEXIST);
    EXPECT(vgpu_scheduler_watch(scheduler, 2, second_fd, nullptr, 0) == 0);
    EXPECT(vgpu_scheduler_watch(scheduler, 3, first_fd, &page, VGPU_MAX_PROCESSES) == -EINVAL);
    EXPECT(vgpu_scheduler_watch(scheduler, 3, -1, nullptr, 0) == -EBADF);
    EXPECT(!readable(event, 0));

    kill(first, SIGKILL);
    EXPECT(readable(event, 100));
    EXPECT(__atomic_load_n(&page.process[0].pid, __ATOMIC_ACQUIRE) == 0 && page.process[0].device[0].used == 0);
    uint64_t keys[4];
    EXPECT(vgpu_scheduler_take(scheduler, keys, 4) == 1 && keys[0] == 1);
    EXPECT(!readable(event, 0));

    EXPECT(vgpu_scheduler_unwatch(scheduler, 2) == 0);
    EXPECT(vgpu_scheduler_unwatch(scheduler, 2) == -ENOENT);
    kill(second, SIGKILL);
    waitpid(first, nullptr, 0);
    waitpid(second, nullptr, 0);
    EXPECT(vgpu_scheduler_watch(scheduler, 4, second_fd, nullptr, 0) == 0); /* already dead: reported all the same */
    EXPECT(readable(event, 100));
    EXPECT(vgpu_scheduler_take(scheduler, keys, 4) == 1 && keys[0] == 4);
    vgpu_scheduler_destroy(scheduler);
    vgpu_scheduler_destroy(nullptr);
}

int main() {
    a_death_frees_the_slot_and_nothing_else();
    deaths_are_taken_in_order_and_once();
    what_is_removed_is_not_reported();
    a_killed_process_is_seen_within_100_ms();
    return 0;
}
