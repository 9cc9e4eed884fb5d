//! Every message comes back as it was; no bytes do harm.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::Union;

fn handle() -> impl Strategy<Value = Handle> {
    any::<u64>().prop_map(Handle)
}

fn handles() -> impl Strategy<Value = Vec<Handle>> {
    vec(handle(), 0..20)
}

fn text(bytes: usize) -> impl Strategy<Value = String> {
    // Characters take up to four bytes.
    vec(any::<char>(), 0..bytes / 4).prop_map(|chars| chars.into_iter().collect())
}

fn opt_in() -> impl Strategy<Value = OptIn> {
    prop_oneof![Just(OptIn::Wanted), Just(OptIn::Unwanted)]
}

fn open() -> impl Strategy<Value = Open> {
    let context = prop_oneof![any::<u32>().prop_map(Context::Task), any::<u32>().prop_map(Context::Cpu)];
    let narrowing =
        prop_oneof![Just(Narrowing::Everything), any::<u32>().prop_map(Narrowing::OnCpu), Just(Narrowing::Cgroup)];
    let attrs = vec(vec(any::<u8>(), 0..ATTR_BYTES + 1), 0..GROUP_EVENTS + 1);
    (context, narrowing, attrs, opt_in(), opt_in()).prop_map(|(context, narrowing, attrs, files, entries)| Open {
        context,
        narrowing,
        attrs,
        files,
        entries,
    })
}

fn open_cgroup() -> impl Strategy<Value = OpenCgroup> {
    let cgroup = (any::<[u64; 2]>(), text(CGROUP_PATH_BYTES));
    let cgroup = cgroup.prop_map(|([device, inode], path)| CgroupName { device, inode, path });
    (open(), cgroup).prop_map(|(open, cgroup)| OpenCgroup { open, cgroup })
}

fn subscribe() -> impl Strategy<Value = Subscribe> {
    let numbers = || vec(any::<u32>(), 0..20);
    let scope = prop_oneof![numbers().prop_map(Scope::Cpus), numbers().prop_map(Scope::Tasks)];
    let attrs = vec(vec(any::<u8>(), 0..ATTR_BYTES + 1), 0..SUBSCRIBED_EVENTS + 1);
    (scope, attrs, any::<[u64; 2]>()).prop_map(|(scope, attrs, [ring_bytes, wake_bytes])| Subscribe {
        scope,
        attrs,
        ring_bytes,
        wake_bytes,
    })
}

fn request() -> impl Strategy<Value = Request> {
    let hello = (any::<u16>(), any::<u16>(), text(NAME_BYTES), any::<u64>());
    let op = Union::new([
        Just(EventOp::Enable).boxed(),
        Just(EventOp::Disable).boxed(),
        Just(EventOp::Reset).boxed(),
        Just(EventOp::EnableGroup).boxed(),
        Just(EventOp::DisableGroup).boxed(),
        vec(any::<u8>(), 0..ATTR_BYTES + 1).prop_map(EventOp::Modify).boxed(),
    ]);
    prop_oneof![
        hello.prop_map(|(oldest_version, newest_version, name, pid_namespace)| {
            Request::Hello(Hello { oldest_version, newest_version, name, pid_namespace })
        }),
        open().prop_map(Request::Open),
        open_cgroup().prop_map(Request::OpenCgroup),
        (handle(), op).prop_map(|(handle, op)| Request::Control { handle, op }),
        handles().prop_map(|handles| Request::Read { handles }),
        handle().prop_map(|handle| Request::Renew { handle }),
        handles().prop_map(|handles| Request::Close { handles }),
        prop_oneof![Just(Detail::Summary), Just(Detail::Full)].prop_map(|detail| Request::Status { detail }),
        Just(Request::Ping),
        any::<u16>().prop_map(|weight| Request::Weigh { weight }),
        subscribe().prop_map(Request::Subscribe),
        handle().prop_map(|handle| Request::Numbers { handle }),
    ]
}

fn opened() -> impl Strategy<Value = Opened> {
    let place = (any::<u32>(), any::<u32>()).prop_map(|(event, value)| ValueIndex { event, value });
    let file = (any::<u64>(), any::<u64>(), any::<u32>(), vec(place, 0..5))
        .prop_map(|(number, read_format, values, places)| PassedFile { number, read_format, values, places });
    (handles(), vec(any::<u32>(), 0..20), vec(file, 0..5)).prop_map(|(handles, entries, files)| Opened {
        handles,
        entries,
        files,
    })
}

fn moment() -> impl Strategy<Value = TimedTotals> {
    any::<[u64; 4]>().prop_map(|[value, enabled_ns, running_ns, time_ns]| TimedTotals {
        totals: Totals { value, enabled_ns, running_ns },
        time_ns,
    })
}

fn welcome() -> impl Strategy<Value = Welcome> {
    let page = any::<Option<(u32, u32)>>();
    (any::<u16>(), any::<u64>(), any::<[u32; 2]>(), any::<[bool; 3]>(), page).prop_map(
        |(version, epoch, [events, requests_per_second], [files, system_wide, tasks], page)| Welcome {
            version,
            epoch,
            limits: Limits { events, requests_per_second },
            rights: Rights { files, system_wide, tasks },
            page: page.map(|(entries, refresh_ms)| ServedPage { entries, refresh_ms }),
        },
    )
}

fn notice() -> impl Strategy<Value = Notice> {
    prop_oneof![
        handles().prop_map(|handles| Notice::Moved { handles }),
        (handles(), text(SENTENCE_BYTES)).prop_map(|(handles, why)| Notice::Lost { handles, why }),
        text(SENTENCE_BYTES).prop_map(|text| Notice::Slow { text }),
        text(SENTENCE_BYTES).prop_map(|text| Notice::Bye { text }),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![Just(Part::More), Just(Part::Last)]
}

fn reply() -> impl Strategy<Value = Reply> {
    let refusal = (any::<u32>(), any::<i32>(), any::<u16>(), text(SENTENCE_BYTES));
    let number = any::<(u32, u32, u64)>().prop_map(|(event, cpu, number)| EventNumber { event, cpu, number });
    let value = prop_oneof![moment().prop_map(Ok), any::<i32>().prop_map(Err)];
    prop_oneof![
        welcome().prop_map(Reply::Welcome),
        refusal.prop_map(|(index, errno, by, text)| Reply::Refused(Refusal { index, errno, by, text })),
        opened().prop_map(Reply::Opened),
        Just(Reply::Done),
        vec(value, 0..20).prop_map(|values| Reply::Values { values }),
        (part(), vec(any::<u8>(), 0..2000)).prop_map(|(part, text)| Reply::StatusReport { part, text }),
        notice().prop_map(Reply::Notice),
        (handle(), any::<u64>()).prop_map(|(handle, ring_bytes)| Reply::Subscribed(Subscribed { handle, ring_bytes })),
        (part(), vec(number, 0..200)).prop_map(|(part, numbers)| Reply::Numbers { part, numbers }),
    ]
}

fn number_of(reply: &Reply, number: u32) -> u32 {
    if matches!(reply, Reply::Notice(_)) { 0 } else { number }
}

proptest! {
    #[test]
    fn requests_come_back(number in 1_u32.., request in request()) {
        let bytes = encode_request(number, &request).unwrap();
        prop_assert!(bytes.len() <= PACKET_BYTES);
        prop_assert_eq!(decode_request(&bytes), Ok((number, request)));
    }

    #[test]
    fn replies_come_back(number in 1_u32.., reply in reply()) {
        let number = number_of(&reply, number);
        let bytes = encode_reply(number, &reply).unwrap();
        prop_assert_eq!(decode_reply(&bytes), Ok((number, reply)));
    }

    #[test]
    fn any_bytes_are_survived(bytes in vec(any::<u8>(), 0..3000)) {
        let _ = decode_request(&bytes);
        let _ = decode_reply(&bytes);
    }

    #[test]
    fn spoilt_requests_are_survived(request in request(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = encode_request(1, &request).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = decode_request(&bytes);
        let _ = decode_reply(&bytes);
    }

    #[test]
    fn a_cut_is_an_error(request in request(), at in any::<prop::sample::Index>()) {
        let bytes = encode_request(1, &request).unwrap();
        let cut = &bytes[..at.index(bytes.len())];
        prop_assert_eq!(decode_request(cut), Err(WireError::Broken));
    }

    #[test]
    fn a_surplus_is_an_error(request in request(), reply in reply(), more in 1_usize..9) {
        let mut bytes = encode_request(1, &request).unwrap();
        bytes.extend(std::iter::repeat_n(0, more));
        prop_assert_eq!(decode_request(&bytes), Err(WireError::Surplus));
        let mut bytes = encode_reply(number_of(&reply, 1), &reply).unwrap();
        bytes.extend(std::iter::repeat_n(0, more));
        prop_assert_eq!(decode_reply(&bytes), Err(WireError::Surplus));
    }
}

#[test]
fn numbers_have_their_meaning() {
    assert_eq!(encode_request(0, &Request::Ping), Err(WireError::Number));
    let mut bytes = encode_request(7, &Request::Ping).unwrap();
    bytes[..4].fill(0);
    assert_eq!(decode_request(&bytes), Err(WireError::Number));
    assert_eq!(encode_reply(0, &Reply::Done), Err(WireError::Number));
    let bye = Reply::Notice(Notice::Bye { text: "gone".into() });
    assert_eq!(encode_reply(3, &bye), Err(WireError::Number));
    let refused = Reply::Refused(Refusal::new(RefusalKind::Request, 0, 22, "what?"));
    assert_eq!(decode_reply(&encode_reply(0, &refused).unwrap()), Ok((0, refused)));
}

#[test]
fn what_is_too_long_is_refused() {
    let handles = |count: u64| Request::Read { handles: (0..count).map(Handle).collect() };
    assert!(decode_request(&encode_request(1, &handles(REQUEST_HANDLES as u64)).unwrap()).is_ok());
    let more = encode_request(1, &handles(REQUEST_HANDLES as u64 + 1)).unwrap();
    assert_eq!(decode_request(&more), Err(WireError::Broken));
    let subscribe = |attrs, numbers| {
        let (attrs, scope) = (vec![vec![0; ATTR_BYTES]; attrs], Scope::Tasks(vec![u32::MAX; numbers]));
        encode_request(1, &Request::Subscribe(Subscribe { scope, attrs, ring_bytes: 4096, wake_bytes: 0 })).unwrap()
    };
    assert!(decode_request(&subscribe(SUBSCRIBED_EVENTS, SCOPE_NUMBERS)).is_ok());
    for (attrs, numbers) in [(SUBSCRIBED_EVENTS + 1, 1), (1, SCOPE_NUMBERS + 1)] {
        assert_eq!(decode_request(&subscribe(attrs, numbers)), Err(WireError::Broken));
    }
    let number = EventNumber { event: u32::MAX, cpu: u32::MAX, number: u64::MAX };
    let numbers = |count| encode_reply(1, &Reply::Numbers { part: Part::Last, numbers: vec![number; count] });
    assert!(decode_reply(&numbers(PART_NUMBERS).unwrap()).is_ok());
    assert_eq!(decode_reply(&numbers(PART_NUMBERS + 1).unwrap()), Err(WireError::Broken));
    let hello = |bytes| {
        let name = "n".repeat(bytes);
        Request::Hello(Hello { oldest_version: 1, newest_version: 1, name, pid_namespace: 0 })
    };
    assert!(decode_request(&encode_request(1, &hello(NAME_BYTES)).unwrap()).is_ok());
    assert_eq!(decode_request(&encode_request(1, &hello(NAME_BYTES + 1)).unwrap()), Err(WireError::Broken));
    assert_eq!(decode_request(&vec![1; PACKET_BYTES + 1]), Err(WireError::TooLong));
    assert_eq!(encode_request(1, &handles(PACKET_BYTES as u64)), Err(WireError::TooLong));
}

/// A length that is a lie gets no room.
#[test]
fn a_lie_about_a_length_is_found_out() {
    // Read, with 2^63 handles.
    let mut bytes = vec![1, 0, 0, 0, 3];
    bytes.extend([0xff; 9]);
    bytes.push(0x00);
    assert_eq!(decode_request(&bytes), Err(WireError::Broken));
    // Lists of lists, as many as there are bytes.
    let mut bytes = encode_request(1, &Request::Ping).unwrap();
    bytes[4] = 1;
    bytes.extend([0, 0, 0]);
    bytes.extend([0xff, 0xff, 0x03]);
    bytes.resize(PACKET_BYTES, 0);
    assert_eq!(decode_request(&bytes), Err(WireError::Broken));
}

#[test]
fn memory_is_bounded() {
    for fill in [0, 1, 0x40, 0x7f, 0x80, 0xff] {
        for variant in 0..16 {
            for length in [[0xff, 0xff, 0x03], [0x80, 0x08, 0x00], [0xc0, 0x00, 0x40]] {
                for skip in 0..8 {
                    let mut bytes = vec![1, 0, 0, 0, variant];
                    bytes.extend(std::iter::repeat_n(1, skip));
                    bytes.extend(length);
                    bytes.resize(PACKET_BYTES, fill);
                    let used = allocation_counter::measure(|| {
                        let _ = decode_request(&bytes);
                        let _ = decode_reply(&bytes);
                    });
                    assert!(used.bytes_max <= DECODED_BYTES as u64, "{used:?} for {:?}", &bytes[..20]);
                }
            }
        }
    }
}

/// The first words of any two versions: they must never look different.
#[test]
fn the_first_words_stay_as_they_are() {
    let hello =
        Request::Hello(Hello { oldest_version: 1, newest_version: 300, name: "stat".into(), pid_namespace: 0x81 });
    let bytes = encode_request(2, &hello).unwrap();
    assert_eq!(bytes, [2, 0, 0, 0, 0, 1, 0xac, 0x02, 4, b's', b't', b'a', b't', 0x81, 0x01]);
    let refused = Reply::Refused(Refusal::new(RefusalKind::Version, 0, 93, "no"));
    assert_eq!(encode_reply(2, &refused).unwrap(), [2, 0, 0, 0, 1, 0, 0xba, 0x01, 1, 2, b'n', b'o']);
    let welcome = Reply::Welcome(Welcome {
        version: 1,
        epoch: 5,
        limits: Limits { events: 6, requests_per_second: 7 },
        rights: Rights { files: true, system_wide: false, tasks: true },
        page: Some(ServedPage { entries: 8, refresh_ms: 100 }),
    });
    assert_eq!(encode_reply(2, &welcome).unwrap(), [2, 0, 0, 0, 0, 1, 5, 6, 7, 1, 0, 1, 1, 8, 100]);
}

#[test]
fn every_kind_of_refusal_is_told_apart() {
    for by in 0..=20 {
        let kind = Refusal { index: 0, errno: 1, by, text: String::new() }.kind();
        assert_eq!(kind as u16, if by <= 7 { by } else { 0 });
    }
    let long = Refusal::new(RefusalKind::Kernel, 0, 1, "ä".repeat(SENTENCE_BYTES));
    assert_eq!(long.text.len(), SENTENCE_BYTES);
}
