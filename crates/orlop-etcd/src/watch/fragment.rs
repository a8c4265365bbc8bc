//! Fragments of large responses, for watches created with `fragment`.

use prost::Message;

use crate::pb::etcdserverpb::WatchResponse;

/// Splits a response into fragments below `limit` bytes, with at least one event each. Every fragment but the last has
/// the flag `fragment`.
pub(super) fn split(mut response: WatchResponse, limit: usize) -> Vec<WatchResponse> {
    if response.encoded_len() < limit {
        return vec![response];
    }
    let events = std::mem::take(&mut response.events);
    let empty = response.encoded_len();
    let (mut fragments, mut current, mut bytes) = (Vec::new(), response.clone(), empty);
    for event in events {
        // The tag and the length of an embedded message.
        let size = event.encoded_len() + 6;
        if bytes + size >= limit && !current.events.is_empty() {
            current.fragment = true;
            fragments.push(std::mem::replace(&mut current, response.clone()));
            bytes = empty;
        }
        bytes += size;
        current.events.push(event);
    }
    fragments.push(current);
    fragments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::mvccpb::{Event, KeyValue};

    fn response(sizes: &[usize]) -> WatchResponse {
        let event = |size: &usize| {
            let kv = KeyValue { key: "k".into(), value: vec![0; *size].into(), ..KeyValue::default() };
            Event { kv: Some(kv), ..Event::default() }
        };
        WatchResponse { watch_id: 7, events: sizes.iter().map(event).collect(), ..WatchResponse::default() }
    }

    #[test]
    fn fragments_stay_below_the_limit_and_all_but_the_last_are_flagged() {
        let whole = response(&[400; 10]);
        let fragments = split(whole.clone(), 1000);
        assert!(fragments.len() >= 5, "{}", fragments.len());
        assert!(fragments.iter().all(|current| current.encoded_len() < 1000 && current.watch_id == 7));
        let (last, others) = fragments.split_last().unwrap();
        assert!(others.iter().all(|current| current.fragment) && !last.fragment);
        let joined: Vec<_> = fragments.iter().flat_map(|current| current.events.clone()).collect();
        assert_eq!(joined, whole.events);
    }

    #[test]
    fn large_event_gets_its_own_fragment_and_small_response_is_not_split() {
        assert_eq!(split(response(&[10, 5000, 10]), 1000).len(), 3);
        assert_eq!(split(response(&[10, 10]), 1000).len(), 1);
    }
}
