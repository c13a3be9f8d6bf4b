// What ThreadSanitizer is told about libraries that are not built with it. Linked into tests that use them.
//
// TSan sees what happens inside a library only where it calls an intercepted function (mutexes, memcpy, read,
// delete). Synchronisation by atomics, such as the reference counts by which Gloo's buffers wait for its I/O thread,
// or by a loop's own queue, is invisible to it, and what follows looks like a race.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return
      // ~UnboundBuffer waits for a reference count that the I/O thread drops.
      "race:libgloo.so\n"
      // Promises and deferred functions between the caller and the loop's thread.
      "race:libtensorpipe.so\n"
      // Descriptors that the loop closes and the kernel hands out again.
      "race:libuv.so\n"
      // The last reference to a Status is counted down inside libabsl_status, then deleted.
      "race:Status::Unref\n"
      // glibc's own lock around the time zone is not a pthread mutex.
      "race:google::LogMessageTime\n";
}

// A child of a test that has something to report ends with it, so that its parent notices.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "halt_on_error=1"; }
