/* The connection to the arbiter (vgpu/protocol.h): requests from any thread, replies read by one helper thread, reconnects after an EOF. */
#pragma once
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <atomic>

#include "vgpu/control.h"
#include "vgpu/protocol.h"

namespace vgpu {

enum class Answer {
    OK,
    DENIED,      /* by the arbiter, or because it does not know us any more */
    CANCELLED,   /* the tenant was interrupted */
    UNREACHABLE, /* no connection for some seconds, or no answer within the bound */
};

/* A descriptor together with what it refers to: a program that closes every descriptor it finds must not make us use its own. */
struct Descriptor {
    int fd;
    dev_t device;
    ino_t inode;
};

/* Zero-initialised memory, then attach(). */
class Channel {
  public:
    /* Connects, presents the token and receives slot and page. Bounded to about a second in all. Null on failure. Called once, from the
     * first cuInit or nvmlInit of the process. */
    vgpu_control *attach(const char *path, const char *token, uint32_t *slot);
    /* Sends and waits for the answer, at most `timeout_ms`. Ends early when the page's cancel counter moves, if `cancellable`. */
    Answer ask(uint16_t op, unsigned part, uint64_t bytes, uint16_t flags, int timeout_ms, bool cancellable);
    /* Sends COMMIT. Lost when disconnected: the arbiter clears a slot's grants when it takes the page back. */
    void commit(unsigned part, uint64_t bytes);
    /* In a forked child: closes what it inherited of its parent's channel. */
    void drop();

  private:
    struct Request;
    static void *run(void *channel);
    bool connect();
    bool greet(bool again, uint32_t *slot);
    bool start_thread();
    void read_replies();
    void answer(const vgpu_reply &reply);
    bool reconnect();
    bool send(const vgpu_request &packet);
    vgpu_request packet(uint16_t op, unsigned part, uint64_t bytes, uint16_t flags) const;
    void unlink(Request *request);

    pthread_mutex_t mutex_; /* socket_, pending_, next_id_ */
    Descriptor socket_;     /* fd -1 while disconnected */
    Descriptor page_fd_;
    Request *pending_;
    uint64_t next_id_;
    std::atomic<int64_t> disconnected_ms_; /* monotonic time of the last EOF; 0 = connected */
    std::atomic<bool> refused_;            /* the arbiter does not know the token any more */
    vgpu_control *page_;
    uint32_t slot_;
    char path_[108];
    char token_[VGPU_TOKEN_LENGTH];
};

}  // namespace vgpu
