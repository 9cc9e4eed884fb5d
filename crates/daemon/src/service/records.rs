//! Requests for records.
//!
//! **Invariant:** a refused request has changed nothing.

use super::client::HeldStream;
use super::counting::Counting;
use super::request::{Answered, decode, refusal, too_many, unknown};
use super::streaming::{Flow, Subscription};
use super::{ClientId, Effect, Failed, Note, Rules, Service, errno};
use pmux::serving::shared::wire::{
    Handle, PART_NUMBERS, Part, Refusal, RefusalKind, Reply, Scope, Subscribe, Subscribed, Verb,
};

/// The smallest ring: a page.
const LEAST_RING_BYTES: u64 = 4096;
/// The largest one.
const MOST_RING_BYTES: u64 = pmux::serving::MOST_RING_BYTES as u64;
const KIB: u64 = 1024;

impl<C: Counting> Service<C> {
    pub(super) fn subscribe(
        &mut self,
        id: ClientId,
        counting: &mut C,
        number: u32,
        wish: &Subscribe,
        out: &mut Vec<Effect<C::File>>,
    ) -> Answered {
        let wanted = understand(wish)?;
        let events = self.check_subscription(id, counting, &wanted)?;
        let client = self.client(id)?;
        for (index, attr) in wanted.attrs.iter().enumerate() {
            let decided = counting.decide_records(client.asker(), attr, &wanted.scope).map_err(Failed::by_kernel)?;
            decided.map_err(|denied| refusal(denied, index))?;
        }
        let (stream, files) = counting.subscribe(&wanted).map_err(Failed::by_kernel)?;
        let handle = Handle(self.next_handle);
        self.next_handle += 1;
        self.events += events;
        self.ring_bytes += wanted.ring_bytes;
        self.tallies.opened += u64::from(events);
        let ring_bytes = wanted.ring_bytes;
        let names = wanted.attrs.iter().map(|attr| counting.name(attr)).collect();
        let note = Note::Subscribed(handle, names, wanted.clone());
        self.client(id)?.take_in_stream(handle, HeldStream { stream, wanted, events });
        out.push(Effect::Note(note));
        let reply = Reply::Subscribed(Subscribed { handle, ring_bytes });
        out.push(Effect::Send { number, reply, files });
        Ok(())
    }

    /// Whether a client may have so much; how many events it is.
    fn check_subscription(&mut self, id: ClientId, counting: &C, wanted: &Subscription) -> Result<u32, Refusal> {
        let Rules { limits, kernel_ring_bytes, .. } = self.rules;
        let (all, all_bytes) = (self.events, self.ring_bytes);
        let account = self.client(id)?.account();
        let (subscriptions, of_client) = (account.streams.len(), account.events);
        let own_bytes: u64 = account.streams.values().map(|held| held.wanted.ring_bytes).sum();
        let own_events: u64 = account.streams.values().map(|held| u64::from(held.events)).sum();
        let full = |text: String| Err(Refusal::new(RefusalKind::Limit, 0, errno::EMFILE, text));
        let most = limits.subscriptions_per_client;
        if subscriptions >= most as usize {
            return full(format!(
                "a client may have {most} subscriptions (`limits.subscriptions_per_client` in the service's configuration)"
            ));
        }
        let attrs = u32::try_from(wanted.attrs.len()).unwrap_or(u32::MAX);
        let events = attrs.saturating_mul(counting.places(&wanted.scope));
        let most = limits.events_per_subscription;
        if events > most {
            return full(format!(
                "it would be {events} events, and {most} may be opened at a time (`limits.events_per_subscription` in the service's \
                 configuration): ask for fewer events, CPUs or threads, several times if need be"
            ));
        }
        if of_client.saturating_add(events) > limits.events_per_client {
            return Err(too_many("a client may have open", "events_per_client", limits.events_per_client));
        }
        if all.saturating_add(events) > limits.events {
            return Err(too_many("all clients together may have open", "events", limits.events));
        }
        let in_kernel = |events: u64| events.saturating_mul(kernel_ring_bytes);
        for (whose, key, bytes, most) in [
            ("a client's rings", "rings_kib_per_client", own_bytes + wanted.ring_bytes, limits.rings_kib_per_client),
            ("the rings of all clients", "rings_kib", all_bytes + wanted.ring_bytes, limits.rings_kib),
            (
                "the kernel's rings for a client",
                "kernel_rings_kib_per_client",
                in_kernel(own_events + u64::from(events)),
                limits.kernel_rings_kib_per_client,
            ),
            (
                "the kernel's rings for all clients",
                "kernel_rings_kib",
                counting.kernel_bytes().saturating_add(in_kernel(u64::from(events))),
                limits.kernel_rings_kib,
            ),
        ] {
            if bytes > u64::from(most) * KIB {
                return full(format!(
                    "{whose} together may have {most} KiB (`limits.{key}` in the service's configuration)"
                ));
            }
        }
        Ok(events)
    }

    pub(super) fn numbers(
        &mut self,
        id: ClientId,
        counting: &C,
        number: u32,
        handle: Handle,
        out: &mut Vec<Effect<C::File>>,
    ) -> Answered {
        let held = self.client(id)?.stream(handle).ok_or_else(|| unknown(0))?;
        let numbers = counting.numbers(&held.stream);
        let parts = numbers.len().div_ceil(PART_NUMBERS).max(1);
        let mut chunks = numbers.chunks(PART_NUMBERS);
        for index in 1..=parts {
            let part = if index == parts { Part::Last } else { Part::More };
            let numbers = chunks.next().unwrap_or_default().to_vec();
            out.push(Effect::Send { number, reply: Reply::Numbers { part, numbers }, files: Vec::new() });
        }
        Ok(())
    }

    /// Switches a subscription; `None` where the handle is none's.
    pub(super) fn control_stream(
        &mut self,
        id: ClientId,
        counting: &mut C,
        handle: Handle,
        verb: &Verb,
    ) -> Result<Option<()>, Refusal> {
        let Some(held) = self.client(id)?.stream(handle) else { return Ok(None) };
        let flow = match verb {
            Verb::Enable | Verb::EnableGroup => Flow::On,
            Verb::Disable | Verb::DisableGroup => Flow::Off,
            Verb::Reset | Verb::Modify(_) => {
                let text = "a subscription is switched on and off, and nothing else";
                return Err(Refusal::new(RefusalKind::Request, 0, errno::EINVAL, text));
            }
        };
        counting.switch(&held.stream, flow).map(Some).map_err(Failed::by_kernel)
    }
}

fn understand(wish: &Subscribe) -> Result<Subscription, Refusal> {
    let wrong = |text: String| Err(Refusal::new(RefusalKind::Request, 0, errno::EINVAL, text));
    let Subscribe { scope, attrs, ring_bytes, wake_bytes } = wish;
    let attrs = decode(attrs)?;
    if !ring_bytes.is_power_of_two() || !(LEAST_RING_BYTES..=MOST_RING_BYTES).contains(ring_bytes) {
        return wrong(format!(
            "a ring has a power of two of bytes, from {LEAST_RING_BYTES} to {MOST_RING_BYTES}, and not {ring_bytes}"
        ));
    }
    let mut scope = scope.clone();
    match &mut scope {
        Scope::Tasks(tasks) if tasks.is_empty() => return wrong("no thread is named".to_owned()),
        Scope::Tasks(tasks) if tasks.contains(&0) => return wrong("there is no task 0".to_owned()),
        // Once each, or everything would come twice.
        Scope::Tasks(numbers) | Scope::Cpus(numbers) => {
            numbers.sort_unstable();
            numbers.dedup();
        }
    }
    Ok(Subscription { scope, attrs, ring_bytes: *ring_bytes, wake_bytes: *wake_bytes })
}
