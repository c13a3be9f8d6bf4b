// One pass over a loader's batches, as range-for reads it; the same for loaders of every kind.
#pragma once

namespace farhop {

// Made by a loader's epoch(). Borrows the loader, which must stay where it is. One consumer.
template <typename Loader, typename BatchType>
class LoaderEpoch {
 public:
  // What range-for needs. ++ throws Error when sampling failed; the loader stays usable for another epoch unless a peer
  // was lost.
  class Iterator {
   public:
    BatchType& operator*() { return batch_; }
    BatchType* operator->() { return &batch_; }
    Iterator& operator++() {
      batch_ = BatchType();  // its memory goes before the next one's comes
      if (!loader_->next(&batch_)) loader_ = nullptr;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return loader_ != other.loader_; }
    bool operator==(const Iterator& other) const { return loader_ == other.loader_; }

   private:
    friend class LoaderEpoch;
    Loader* loader_ = nullptr;  // null at the end
    BatchType batch_;
  };

  Iterator begin() {
    Iterator iterator;
    iterator.loader_ = loader_;
    return ++iterator;
  }
  Iterator end() { return {}; }

 private:
  friend Loader;
  explicit LoaderEpoch(Loader* loader) : loader_(loader) {}
  Loader* loader_;
};

}  // namespace farhop
