//! One context, its lock and its bank.
//!
//! What it is: how a step of the pure context reaches the counters. Whoever takes a step has the seat at the bank, and
//! keeps it until every order that is waiting has been carried out, one after the other and in their order.
//!
//! **Invariant:** the context's lock is never held while the bank or the clock is called.

use crate::context::{Batch, Context, ContextKey, Order, Outcome, Report, Step};
use crate::host::{Host, LockCell, Rank};
use crate::pmu::CounterBank;

pub(super) struct ContextCell<H: Host> {
    pub(super) key: ContextKey,
    seat: H::TaskLock<Seat<H::Bank>>,
    context: H::IrqLock<Context>,
}

/// Who sits here touches the counters.
struct Seat<B> {
    bank: B,
    batch: Batch,
}

impl<H: Host> ContextCell<H> {
    pub(super) fn new(key: ContextKey, bank: H::Bank) -> Self {
        Self {
            key,
            seat: LockCell::ranked(Rank::Bank, Seat { bank, batch: Batch::default() }),
            context: LockCell::ranked(Rank::Context, Context::new()),
        }
    }

    /// Looks at the context, or takes a step that leaves no orders.
    pub(super) fn look<R>(&self, f: impl FnOnce(&mut Context) -> R) -> R {
        self.context.with(f)
    }

    /// Takes a step and carries out what it orders.
    pub(super) fn step<R>(&self, host: &H, f: impl FnOnce(&mut Context, Step<'_>) -> R) -> R {
        self.transact(host, f, |_| ()).0
    }

    /// Takes a step, carries out what it orders, and looks at what has become of it.
    pub(super) fn ask<S>(
        &self,
        host: &H,
        f: impl FnOnce(&mut Context, Step<'_>),
        look: impl FnMut(&mut Context) -> S,
    ) -> S {
        self.transact(host, f, look).1
    }

    fn transact<R, S>(
        &self,
        host: &H,
        f: impl FnOnce(&mut Context, Step<'_>) -> R,
        mut look: impl FnMut(&mut Context) -> S,
    ) -> (R, S) {
        self.seat.with(|Seat { bank, batch }| {
            let step = Step { now: host.now(), pmus: host };
            let (result, mut turn) = self.context.with(|context| (f(context, step), turn(context, batch, &mut look)));
            loop {
                let (order, outcome) = match turn {
                    Turn::Order(order, outcome) => (order, outcome),
                    Turn::Done(seen) => return (result, seen),
                };
                let report = tell(bank, outcome, batch);
                let answered = needs_answer(order, report).then(|| host.now());
                turn = self.context.with(|context| {
                    if let Some(now) = answered {
                        context.complete(order, report, batch, Step { now, pmus: host });
                    }
                    self::turn(context, batch, &mut look)
                });
            }
        })
    }

    /// Asks the host whether the context is there, unless it is known: a switch may have told it already.
    pub(super) fn meet(&self, host: &H) {
        if self.look(|context| context.presence().is_none()) {
            let presence = host.presence(self.key);
            self.step(host, |context, step| context.meet(presence, step));
        }
    }
}

/// What comes next in a transaction.
enum Turn<S> {
    Order(Order, Outcome),
    Done(S),
}

fn turn<S>(context: &mut Context, batch: &mut Batch, look: &mut impl FnMut(&mut Context) -> S) -> Turn<S> {
    match context.next_order() {
        Some(order) => Turn::Order(order, context.prepare(order, batch)),
        None => Turn::Done(look(context)),
    }
}

/// Saves a look at the clock where the context has nothing to learn.
const fn needs_answer(order: Order, report: Report) -> bool {
    !matches!(report, Report::Done) || matches!(order, Order::Forget { .. })
}

fn tell(bank: &mut impl CounterBank, outcome: Outcome, batch: &mut Batch) -> Report {
    let result = match outcome {
        Outcome::Nothing => Ok(()),
        Outcome::Program(lease) => batch.program.as_ref().map_or(Ok(()), |program| bank.program(lease, program)),
        Outcome::Start(lease) => bank.start(lease),
        Outcome::Stop(lease) => {
            bank.stop(lease);
            Ok(())
        }
        Outcome::Release(lease) => {
            bank.release(lease);
            Ok(())
        }
        Outcome::Read(lease) => match bank.read(lease) {
            Ok(reading) => return Report::Reading(reading),
            Err(error) => Err(error),
        },
        Outcome::ReadGroup => match bank.read_group(&batch.leases, &mut batch.readings) {
            Ok(()) => return Report::Readings,
            Err(error) => Err(error),
        },
    };
    result.map_or_else(Report::Refused, |()| Report::Done)
}
