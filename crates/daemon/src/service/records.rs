//! Requests for records.
//!
//! **Invariant:** a refused request has changed nothing.

use super::budget::{Charge, FILES_OF_STREAM};
use super::client::HeldStream;
use super::counting::{Counting, Refused};
use super::request::{Answer, Answered, decode, unknown};
use super::streaming::{Flow, Subscription};
use super::{ClientId, Effect, Note, Rules, Service, errno};
use pmux::server_api::shared::wire::{
    EventOp, Handle, PART_NUMBERS, Part, Refusal, RefusalKind, Reply, Scope, Subscribe, Subscribed,
};

/// The smallest ring: a page.
const LEAST_RING_BYTES: u64 = 4096;
const MOST_RING_BYTES: u64 = pmux::server_api::MOST_RING_BYTES as u64;
/// The smallest ring of the kernel's that is of any use.
const LEAST_KERNEL_RING: u64 = 16 * KIB;
const KIB: u64 = 1024;

impl<C: Counting> Service<C> {
    pub(super) fn subscribe(&mut self, id: ClientId, counting: &mut C, wish: &Subscribe) -> Answered<C::File> {
        let mut wanted = understand(wish)?;
        let charge = self.check_subscription(id, counting, &mut wanted)?;
        if wanted.kernel_ring_bytes == 0 {
            let text = "the kernel's rings for all clients of a user may have what the kernel lets that user lock: \
                        raise kernel.perf_event_mlock_kb, or the client's `ulimit -l`";
            return Err(Refusal::new(RefusalKind::Limit, 0, errno::EPERM, text));
        }
        let (stream, files) = counting.subscribe(&self.client(id)?.peer, &wanted)?;
        let handle = Handle(self.next_handle);
        self.next_handle += 1;
        let user = self.client(id)?.payer;
        self.charge(user, charge);
        self.tallies.opened += u64::from(charge.events);
        let ring_bytes = wanted.ring_bytes;
        let names = wanted.attrs.iter().map(|attr| counting.name(attr)).collect();
        let note = Some(Note::Subscribed(handle, names, wanted.clone()));
        self.client(id)?.take_in_stream(handle, HeldStream { stream, wanted, charge });
        Ok(Answer { note, reply: Reply::Subscribed(Subscribed { handle, ring_bytes }), files })
    }

    /// Whether a client may have so much, and what it costs. The kernel's rings are made as large as the user may have them.
    fn check_subscription(
        &mut self,
        id: ClientId,
        counting: &mut C,
        wanted: &mut Subscription,
    ) -> Result<Charge, Refusal> {
        let Rules { limits, kernel_ring_bytes, .. } = self.rules;
        let all_bytes = self.charge.ring_bytes;
        let client = self.client(id)?;
        let (subscriptions, own) = (client.streams.len(), client.charge);
        let (user, peer) = (client.payer, client.peer.clone());
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
        if self.rules.binds(user) {
            let of_user = self.users.get(&user).map_or(0, |account| account.charge.kernel_ring_bytes);
            let left = counting.locked_bytes(&peer).saturating_sub(of_user);
            wanted.kernel_ring_bytes = ring_within(left, events, kernel_ring_bytes).unwrap_or(0);
        } else {
            wanted.kernel_ring_bytes = kernel_ring_bytes;
        }
        let in_kernel = u64::from(events).saturating_mul(wanted.kernel_ring_bytes);
        let files = u64::from(events) + FILES_OF_STREAM;
        let charge = Charge { events, files, ring_bytes: wanted.ring_bytes, kernel_ring_bytes: in_kernel };
        self.has_room(id, counting, charge)?;
        let in_kernel_of_all = counting.kernel_bytes().saturating_add(in_kernel);
        let (most_of_client, most_of_all) = (limits.kernel_rings_kib_per_client, limits.kernel_rings_kib);
        let (own_bytes, own_in_kernel) = (own.ring_bytes + wanted.ring_bytes, own.kernel_ring_bytes + in_kernel);
        for (whose, key, bytes, most) in [
            ("a client's rings", "rings_kib_per_client", own_bytes, limits.rings_kib_per_client),
            ("the rings of all clients", "rings_kib", all_bytes + wanted.ring_bytes, limits.rings_kib),
            ("the kernel's rings for a client", "kernel_rings_kib_per_client", own_in_kernel, most_of_client),
            ("the kernel's rings for all clients", "kernel_rings_kib", in_kernel_of_all, most_of_all),
        ] {
            if bytes > u64::from(most) * KIB {
                return full(format!(
                    "{whose} together may have {most} KiB (`limits.{key}` in the service's configuration)"
                ));
            }
        }
        Ok(charge)
    }

    pub(super) fn numbers(
        &mut self,
        id: ClientId,
        counting: &C,
        number: u32,
        handle: Handle,
        out: &mut Vec<Effect<C::File>>,
    ) -> Answered<C::File> {
        let held = self.client(id)?.stream(handle).ok_or_else(|| unknown(0))?;
        let numbers = counting.numbers(&held.stream);
        let mut chunks = numbers.chunks(PART_NUMBERS);
        let last = chunks.next_back().unwrap_or_default().to_vec();
        for numbers in chunks {
            let reply = Reply::Numbers { part: Part::More, numbers: numbers.to_vec() };
            out.push(Effect::Send { number, reply, files: Vec::new() });
        }
        Ok(Reply::Numbers { part: Part::Last, numbers: last }.into())
    }

    /// Switches a subscription; `None` where the handle is none's.
    pub(super) fn control_stream(
        &mut self,
        id: ClientId,
        counting: &mut C,
        handle: Handle,
        op: &EventOp,
    ) -> Result<Option<()>, Refusal> {
        let Some(held) = self.client(id)?.stream(handle) else { return Ok(None) };
        let flow = match op {
            EventOp::Enable | EventOp::EnableGroup => Flow::On,
            EventOp::Disable | EventOp::DisableGroup => Flow::Off,
            EventOp::Reset | EventOp::Modify(_) => {
                let text = "a subscription is switched on and off, and nothing else";
                return Err(Refusal::new(RefusalKind::Request, 0, errno::EINVAL, text));
            }
        };
        counting.switch(&held.stream, flow).map(Some).map_err(|failed| Refused::from(failed).into())
    }
}

/// Bytes of the kernel's ring of each of so many events, where all of them may have so much; `None` where they can't have any.
fn ring_within(left: u64, events: u32, most: u64) -> Option<u64> {
    let each = left / u64::from(events.max(1));
    let smaller = std::iter::successors(Some(most), |bytes| Some(bytes / 2));
    smaller.take_while(|&bytes| bytes >= LEAST_KERNEL_RING).find(|bytes| bytes + LEAST_RING_BYTES <= each)
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
    Ok(Subscription { scope, attrs, ring_bytes: *ring_bytes, wake_bytes: *wake_bytes, kernel_ring_bytes: 0 })
}
