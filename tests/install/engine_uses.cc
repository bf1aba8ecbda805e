// What programs write that no example shows, and that compilers have warned of: functions without captures, options
// that are stored, options that begin anywhere.
#include <windrow/engine/coroutine.h>
#include <windrow/engine/reduction.h>
#include <windrow/engine/sender.h>

#include <utility>

struct Receiver {
  void set_value() noexcept {}
  void set_error(std::exception_ptr) noexcept {}
  void set_stopped() noexcept {}
};

struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() noexcept {}
  };
};

void keep(windrow::OpFunction);

void move_functions() {
  windrow::OpFunction empty = [] {}, of_one_byte = [byte = 'a'] { static_cast<void>(byte); };
  windrow::OpFunction moved = std::move(empty);
  moved = std::move(of_one_byte);
  keep(std::move(moved));
  keep([](windrow::OpContext&) {});
}

void push_functions(windrow::Engine& engine, windrow::Var var) {
  engine.push([] {}, {mutate(var)});
  engine.push([] {}, {mutate(var)}, {.priority = 1});
  engine.push_async([](windrow::OnComplete done) { done(); }, {mutate(var)}, {.run_always = true});
  engine.push(engine.declare([] {}, {mutate(var)}));
  const std::stop_source source;
  const windrow::PushOptions options{.name = "stored", .stop = source.get_token()};
  engine.push([] {}, {mutate(var)}, options);
  engine.capture([&] { engine.push([] {}, {mutate(var)}); }).launch();
  engine.heal(var);
  engine.retire(var, [] {});
}

void send_functions(windrow::Engine& engine, windrow::Var var) {
  auto first = windrow::push_sender(engine, [] {}, {mutate(var)}, {.name = "first"}).connect(Receiver());
  first.start();
  auto sender = windrow::push_sender(engine, [] {}, {mutate(var)});
  auto moved = std::move(sender);
  auto second = std::move(moved).connect(Receiver());
  second.start();
}

Detached await_variables(windrow::Engine& engine, windrow::Var var) {
  co_await engine.ready(var);
  co_await engine.ready(mutate(var));
}

void reduce(windrow::Engine& engine) {
  windrow::Reduction<double> sum(engine, 0);
  sum.add([](double& part) { part += 1; });
  sum.add([](double& part) { part += 2; }, {}, {.name = "add"});
  engine.push([] {}, {sum.read()});
  sum.reset(0);
}
