// Four threads pay into one account. Now and then the balance is wrong: one of them writes to it what it should not.
// Which thread is it, and where? One command tells:
//
//     c++ -g -fno-omit-frame-pointer -pthread -o writer-cc examples/watch/writer.cc
//     pmux watch bank::balance:w -- ./writer-cc

#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
#include <pthread.h>

namespace bank {

constexpr int tellers = 4;
constexpr int payments = 250;

long balance;
static std::mutex lock;

static void pay_in(long amount)
{
    std::lock_guard<std::mutex> held(lock);
    balance += amount;
}

struct Audit {
    // Meant for a copy of the account, and called with the account itself.
    static void forget(long &copy) { copy = 0; }
    void look(int payment)
    {
        if (payment % 100 == 99)
            forget(balance);
    }
};

static void teller(int number)
{
    pthread_setname_np(pthread_self(), ("teller-" + std::to_string(number)).c_str());
    Audit audit;
    for (int payment = 0; payment < payments; payment++) {
        pay_in(1);
        if (number == 2)
            audit.look(payment);
    }
}

} // namespace bank

int main()
{
    std::vector<std::thread> threads;
    for (int number = 0; number < bank::tellers; number++)
        threads.emplace_back(bank::teller, number);
    for (std::thread &thread : threads)
        thread.join();
    std::printf("the balance is %ld of %d\n", bank::balance, bank::tellers * bank::payments);
}
