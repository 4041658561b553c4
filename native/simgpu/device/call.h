// A call in progress, as its handler sees it. The handlers (calls_*.cpp) run on the connection's thread under the machine's mutex.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "common/wire.h"
#include "machine.h"

namespace vgpu::sim {

struct Call {
  Machine& machine;
  std::unique_lock<std::mutex>& lock;
  std::shared_ptr<Client> client;
  Context* context = nullptr;       // the request's, of this client and without error
  std::shared_ptr<char> staging;    // kStagingSize bytes shared with the client; an effect may outlive the connection
  std::vector<char> payload;        // the request's; a handler may take it
  int received = -1;                // a descriptor that came with the request; closed after the call
  std::vector<char> answer;         // the reply's payload
  int sent = -1;                    // a descriptor to go with the reply; closed after it

  // CUresult. Waits while the stream's queue is full; gives the mutex up meanwhile.
  int32_t submit(const std::shared_ptr<Stream>& stream, uint32_t device, std::shared_ptr<Operation> operation);
  // Until the operation has finished; returns its status.
  int32_t wait(const Operation& operation);
  // Until all that is pending in the context or stream has finished; returns the context's error.
  int32_t wait_for(const std::shared_ptr<Order>& context, bool blocking_only = false);
  int32_t wait_for(const std::shared_ptr<Stream>& stream);

  // The stream of that number, the driver's own ones in the request's context; its context's device. Empty when there is none.
  std::shared_ptr<Stream> stream(uint64_t number, uint32_t& device);
};

#define X(name) int32_t on_##name(Call& call, const name##Request& request, name##Reply& reply);
VGPU_SIM_CALLS(X)
#undef X

}  // namespace vgpu::sim
