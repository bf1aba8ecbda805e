// Kernels of convolution, pooling and channels.
#include "plugin/kernel_call.h"
#include "rowwise.h"

namespace windrow::cuda {
namespace {

/// op::Window2d in the form that kernels use. Sizes are at most 65536.
struct Window {
  int channels, height, width, window_height, window_width, stride, padding;
  int down, across;  ///< numbers of positions

  explicit Window(const Attributes& sliding) {
    const auto size = [&](std::size_t i) { return static_cast<int>(sliding.sizes[i]); };
    channels = size(0), height = size(1), width = size(2);
    window_height = size(3), window_width = size(4), stride = size(5), padding = size(6);
    down = (height + 2 * padding - window_height) / stride + 1;
    across = (width + 2 * padding - window_width) / stride + 1;
  }
  WINDROW_ON_DEVICE Index positions() const { return Index{down} * across; }

  /// The first row and the first column of the window at a position; negative in the padding.
  WINDROW_ON_DEVICE int top(Index position) const { return static_cast<int>(position / across) * stride - padding; }
  WINDROW_ON_DEVICE int left(Index position) const { return static_cast<int>(position % across) * stride - padding; }
  /// The place of an element in an image, or -1 in the padding.
  WINDROW_ON_DEVICE Index place(int channel, int y, int x) const {
    if (y < 0 || y >= height || x < 0 || x >= width) return -1;
    return (Index{channel} * height + y) * width + x;
  }
};

/// The channel, row and column of an image's element, from its number.
struct Pixel {
  int channel, y, x;
  WINDROW_ON_DEVICE Pixel(const Window& w, Index i) {
    x = static_cast<int>(i % w.width);
    y = static_cast<int>(i / w.width % w.height);
    channel = static_cast<int>(i / w.width / w.height);
  }
};

struct Conv2d {
  static constexpr const char* name = "conv2d";
  In images, filters;
  Window w;
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    const Index filter = c / w.positions(), position = c % w.positions();
    const int top = w.top(position), left = w.left(position);
    const float *image = images.row(r), *weight = filters.row(filter);
    float sum = 0;
    for (int channel = 0; channel < w.channels; ++channel) {
      for (int i = 0; i < w.window_height; ++i) {
        for (int j = 0; j < w.window_width; ++j, ++weight) {
          const Index place = w.place(channel, top + i, left + j);
          if (place >= 0) sum += image[place] * *weight;
        }
      }
    }
    return sum;
  }
  void accesses(Accesses& to) const { to.all(images, filters); }
};

/// Calls f(i, down) for each row i of the window that covers row y of the image at the position `down`.
template <class F>
WINDROW_ON_DEVICE void each_cover(int y, int padding, int window, int stride, int positions, const F& f) {
  for (int i = 0; i < window; ++i) {
    const int start = y + padding - i;
    if (start >= 0 && start % stride == 0 && start / stride < positions) f(i, start / stride);
  }
}

struct Conv2dDataGradient {
  static constexpr const char* name = "conv2d_data_gradient";
  In g, filters;
  Window w;
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    const Pixel at_image(w, c);
    float sum = 0;
    for (Index filter = 0; filter < filters.rows; ++filter) {
      const float* of_filter = g.row(r) + filter * w.positions();
      const float* weights = filters.row(filter) + Index{at_image.channel} * w.window_height * w.window_width;
      each_cover(at_image.y, w.padding, w.window_height, w.stride, w.down, [&](int i, int down) {
        each_cover(at_image.x, w.padding, w.window_width, w.stride, w.across, [&](int j, int across) {
          sum += of_filter[Index{down} * w.across + across] * weights[Index{i} * w.window_width + j];
        });
      });
    }
    return sum;
  }
  void accesses(Accesses& to) const { to.all(g, filters); }
};

/// One team per element of a filter; the team sums over all rows and positions.
struct Conv2dFilterGradient {
  static constexpr const char* name = "conv2d_filter_gradient";
  In images, g;
  Out out;
  bool add;
  Window w;

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    const Index positions = w.positions();
    for (Index e = team.index(); e < out.rows * out.width; e += team.count()) {
      const Index filter = e / out.width, element = e % out.width;
      const int j = static_cast<int>(element % w.window_width);
      const int i = static_cast<int>(element / w.window_width % w.window_height);
      const int channel = static_cast<int>(element / w.window_width / w.window_height);
      const float sum = sum_of(team, images.rows * positions, [&](Index n) {
        const Index r = n / positions, position = n - r * positions;
        const Index place = w.place(channel, w.top(position) + i, w.left(position) + j);
        return place < 0 ? 0 : at(images, r, place) * at(g, r, filter * positions + position);
      });
      team.each([&](int thread) {
        if (thread == 0) write(at(out, filter, element), sum, add);
      });
    }
  }
  void accesses(Accesses& to) const { to.all(images, g, out); }
};

/// The place of the first NaN of a window within one channel, or of its first maximum if it has no NaN.
WINDROW_ON_DEVICE Index pooled(const Window& w, const float* image, int channel, int top, int left) {
  Index found = -1;
  for (int i = 0; i < w.window_height; ++i) {
    for (int j = 0; j < w.window_width; ++j) {
      const Index place = w.place(channel, top + i, left + j);
      if (place >= 0 && (found < 0 || exceeds(image[place], image[found]))) found = place;
    }
  }
  return found;
}

/// Each window covers at least part of the image, because the padding is smaller than the window.
struct MaxPool2d {
  static constexpr const char* name = "max_pool2d";
  In images;
  Window w;
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    const int channel = static_cast<int>(c / w.positions());
    const Index position = c % w.positions();
    const float* image = images.row(r);
    return image[pooled(w, image, channel, w.top(position), w.left(position))];
  }
  void accesses(Accesses& to) const { to.all(images); }
};

/// One thread per element of the image. It adds the gradients from all windows that cover the element.
struct MaxPool2dGradient {
  static constexpr const char* name = "max_pool2d_gradient";
  In images, g;
  Window w;
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    const Pixel here(w, c);
    const float *image = images.row(r), *of_channel = g.row(r) + here.channel * w.positions();
    float sum = 0;
    each_cover(here.y, w.padding, w.window_height, w.stride, w.down, [&](int i, int down) {
      each_cover(here.x, w.padding, w.window_width, w.stride, w.across, [&](int j, int across) {
        if (pooled(w, image, here.channel, here.y - i, here.x - j) == c) {
          sum += of_channel[Index{down} * w.across + across];
        }
      });
    });
    return sum;
  }
  void accesses(Accesses& to) const { to.all(images, g); }
};

struct AddChannelBias : OfXY {
  static constexpr const char* name = "add_channel_bias";
  Index positions;
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const { return at(x, r, c) + at(y, 0, c / positions); }
};

/// One team per channel; the team sums over all rows and positions.
struct AddChannelBiasGradient {
  static constexpr const char* name = "add_channel_bias_gradient";
  In g;
  Out out;
  bool add;

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    const Index positions = g.width / out.width;
    for (Index channel = team.index(); channel < out.width; channel += team.count()) {
      const float sum = sum_of(team, g.rows * positions, [&](Index n) {
        const Index r = n / positions;
        return at(g, r, channel * positions + n - r * positions);
      });
      team.each([&](int thread) {
        if (thread == 0) write(at(out, 0, channel), sum, add);
      });
    }
  }
  void accesses(Accesses& to) const { to.all(g, out); }
};

/// One whole team for each of `count` sums, for any number of rows.
LaunchShape for_sums(const Queue& queue, Index count) { return {std::min(count, Index{queue.multiprocessors} * 64)}; }

/// A kernel that slides a window over its first operand.
template <class Value>
int slide(const Call& call, const Queue& queue) {
  return run_each(call, queue, Value{call.in[0], call.in[1], Window(call.attributes)});
}
int conv2d_filter_gradient(const Call& call, const Queue& queue) {
  const Out out = call.out;
  return launch(queue, for_sums(queue, out.rows * out.width),
                Conv2dFilterGradient{call.in[0], call.in[1], out, adds(call), Window(call.attributes)});
}
int add_channel_bias(const Call& call, const Queue& queue) {
  return run_each(call, queue, AddChannelBias{call.in[0], call.in[1], call.out.width / call.in[1].width});
}
int add_channel_bias_gradient(const Call& call, const Queue& queue) {
  return launch(queue, for_sums(queue, call.out.width), AddChannelBiasGradient{call.in[0], call.out, adds(call)});
}
int max_pool2d(const Call& call, const Queue& queue) {
  return run_each(call, queue, MaxPool2d{call.in[0], Window(call.attributes)});
}

}  // namespace

const KernelEntry images_kernels[] = {{"conv2d", slide<Conv2d>},
                                      {"conv2d_data_gradient", slide<Conv2dDataGradient>},
                                      {"max_pool2d_gradient", slide<MaxPool2dGradient>},
                                      {"conv2d_filter_gradient", conv2d_filter_gradient},
                                      {"max_pool2d", max_pool2d},
                                      {"add_channel_bias", add_channel_bias},
                                      {"add_channel_bias_gradient", add_channel_bias_gradient},
                                      {}};

}  // namespace windrow::cuda
