//! Large responses in parts, for clients that asked for it.

use prost::Message;

use crate::pb::etcdserverpb::WatchResponse;

/// Splits a response so that each part stays under `limit` bytes, one event at the least. Every part but
/// the last says that another follows.
pub(super) fn split(mut response: WatchResponse, limit: usize) -> Vec<WatchResponse> {
    if response.encoded_len() < limit {
        return vec![response];
    }
    let events = std::mem::take(&mut response.events);
    let empty = response.encoded_len();
    let (mut parts, mut part, mut bytes) = (Vec::new(), response.clone(), empty);
    for event in events {
        // The tag and the length of an embedded message.
        let size = event.encoded_len() + 6;
        if bytes + size >= limit && !part.events.is_empty() {
            part.fragment = true;
            parts.push(std::mem::replace(&mut part, response.clone()));
            bytes = empty;
        }
        bytes += size;
        part.events.push(event);
    }
    parts.push(part);
    parts
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
    fn parts_stay_under_the_limit_and_all_but_the_last_announce_another() {
        let whole = response(&[400; 10]);
        let parts = split(whole.clone(), 1000);
        assert!(parts.len() >= 5, "{}", parts.len());
        assert!(parts.iter().all(|part| part.encoded_len() < 1000 && part.watch_id == 7));
        let (last, others) = parts.split_last().unwrap();
        assert!(others.iter().all(|part| part.fragment) && !last.fragment);
        let joined: Vec<_> = parts.iter().flat_map(|part| part.events.clone()).collect();
        assert_eq!(joined, whole.events);
    }

    #[test]
    fn one_large_event_is_a_part_of_its_own_and_a_small_response_stays_whole() {
        assert_eq!(split(response(&[10, 5000, 10]), 1000).len(), 3);
        assert_eq!(split(response(&[10, 10]), 1000).len(), 1);
    }
}
