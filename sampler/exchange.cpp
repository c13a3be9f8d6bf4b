#include "sampler/exchange.h"

#include <new>
#include <utility>

#include "sampler/reply_group.h"

namespace farhop::sampler {

Task<absl::Status> exchange(const ExchangeOptions* options, std::vector<MachineMessage>* messages,
                            std::function<absl::Status()> ownWork) {
  ReplyGroup replies(options->executor);
  absl::Status done;
  try {
    for (MachineMessage& message : *messages) {
      for (const rpc::OutArray& array : message.request) options->traffic->neighborBytes += array.bytes;
      ++options->traffic->messages;
      replies.begin([&] {
        options->agent->call(message.machine, options->method, std::move(message.request), options->deadline, message.reply,
                             [&replies](absl::Status status) { replies.finish(status); });
      });
    }
    done = ownWork();
  } catch (const std::bad_alloc&) {
    done = absl::ResourceExhaustedError("out of memory");
  }
  absl::Status status = co_await replies;
  if (status.ok()) status = done;
  for (const MachineMessage& message : *messages) {
    for (const rpc::Bytes& array : message.reply->arrays) options->traffic->neighborBytes += array.size();
  }
  co_return status;
}

}  // namespace farhop::sampler
