/* The arbiter's native thread, behind a small C interface (Python loads it in cffi's ABI mode: jupyter_vgpu/native/scheduler.py).
 *
 * It watches processes by pidfd. When one dies, its slot in the tenant's control page is zeroed at once, whatever the Python loop is doing,
 * so that the tenant's other processes see the memory free; then the process's key is queued and the event descriptor becomes readable.
 * Pages handed to it must stay mapped until `vgpu_scheduler_unwatch` of the key, or `vgpu_scheduler_take` of it, has returned.
 *
 * All functions may be called from any thread. Errors are negative errno values.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vgpu_scheduler;
struct vgpu_control;

/* Starts the thread. */
int vgpu_scheduler_create(struct vgpu_scheduler **scheduler);

/* Ends the thread and closes what it watches. `scheduler` may be NULL. */
void vgpu_scheduler_destroy(struct vgpu_scheduler *scheduler);

/* Readable as long as keys wait for `vgpu_scheduler_take`. Belongs to the scheduler. */
int vgpu_scheduler_event_fd(const struct vgpu_scheduler *scheduler);

/* Watches the process behind `pidfd` (duplicated; the caller keeps his) under `key`, which must be new (else -EEXIST). `control` is the page
 * whose `slot` is freed on its death; NULL for a process that holds no slot. A process that is already dead is reported like any other. */
int vgpu_scheduler_watch(struct vgpu_scheduler *scheduler, uint64_t key, int pidfd, struct vgpu_control *control, uint32_t slot);

/* Stops watching: afterwards the thread touches the page no more for this key, and the key is not reported. -ENOENT if unknown. */
int vgpu_scheduler_unwatch(struct vgpu_scheduler *scheduler, uint64_t key);

/* Moves the keys of at most `capacity` dead processes to `keys`; they are watched no longer. Returns how many. */
size_t vgpu_scheduler_take(struct vgpu_scheduler *scheduler, uint64_t *keys, size_t capacity);

#ifdef __cplusplus
}
#endif
