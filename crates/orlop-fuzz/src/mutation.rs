//! Damages requests.

use rand::{Rng as _, rngs::SmallRng, seq::IndexedRandom as _};
use serde_json::{Map, Value, json};

use crate::http::Request;

const PARAMETERS: &[&str] = &[
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "labelSelector",
    "fieldSelector",
    "timeoutSeconds",
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "pretty",
    "force",
    "propagationPolicy",
    "gracePeriodSeconds",
    "allowWatchBookmarks",
    "sendInitialEvents",
    "timeout",
];
const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "true",
    "false",
    "All",
    "Strict",
    "Exact",
    "a=b",
    "a in (b,c)",
    "!a",
    "metadata.name=x",
    "metadata.name!=",
    "a=",
    "=",
    "9223372036854775807",
    "18446744073709551616",
    "1e9",
    "null",
    "{}",
    "\u{0}",
    "\u{202e}",
    "Background",
    "Orphan",
    "%",
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJ4In0",
    "1s",
    "1ns",
];
const MEDIA_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "text/plain",
    "*/*",
    "",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
];
/// Depth of a nested value: beyond what any server should follow.
const DEEP: usize = 3000;
const LONG: usize = 70_000;

/// Makes one change.
pub(crate) fn mutate(request: &mut Request, random: &mut SmallRng) {
    match random.random_range(0..10) {
        0 => {
            let name = PARAMETERS.choose(random).copied().unwrap_or_default();
            let value = VALUES.choose(random).copied().unwrap_or_default();
            request.query.push((name.to_owned(), value.to_owned()));
        }
        1 => pick_media_type(&mut request.content_type, random),
        2 => pick_media_type(&mut request.accept, random),
        3 => damage_bytes(&mut request.body, random),
        4 => damage_path(&mut request.path, random),
        _ => damage_json(&mut request.body, random),
    }
}

fn pick_media_type(media_type: &mut String, random: &mut SmallRng) {
    MEDIA_TYPES.choose(random).copied().unwrap_or_default().clone_into(media_type);
}

fn damage_path(path: &mut String, random: &mut SmallRng) {
    let segment =
        ["", "%00", "..", "%2e%2e", "x".repeat(300).as_str(), "UPPER", "a_b", "status", "scale", "%zz", "é"]
            .choose(random)
            .map(|text| (*text).to_owned());
    if let (Some((parent, _)), Some(segment)) = (path.rsplit_once('/'), segment) {
        // A path is sent as it is: only what HTTP itself forbids is left out.
        let segment: String = segment.chars().filter(char::is_ascii).collect();
        *path = format!("{parent}/{segment}");
    }
}

fn damage_bytes(body: &mut Vec<u8>, random: &mut SmallRng) {
    if body.is_empty() {
        return body.extend_from_slice(b"{}");
    }
    let at = random.random_range(0..body.len());
    match random.random_range(0..4) {
        0 => body[at] = random.random(),
        1 => body.truncate(at),
        2 => body.insert(at, *b"{}[],:\"\\\0\xff".choose(random).unwrap_or(&b'{')),
        _ => {
            let piece = body[at..body.len().min(at + 20)].to_vec();
            body.splice(at..at, piece);
        }
    }
}

/// Replaces, removes or adds a member somewhere.
fn damage_json(body: &mut Vec<u8>, random: &mut SmallRng) {
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else { return damage_bytes(body, random) };
    let depth = random.random_range(0..8);
    let pointer = random_place(&value, depth, random);
    let Some(place) = value.pointer_mut(&pointer) else { return };
    match (random.random_range(0..4), place) {
        (0, Value::Object(members)) => {
            let names: Vec<String> = members.keys().cloned().collect();
            if let Some(name) = names.choose(random) {
                members.remove(name);
            }
        }
        (1, Value::Object(members)) => {
            let name = ["unknown", "metadata", "spec", "name", "", "kind", "items", "$patch", "\u{0}"]
                .choose(random);
            members.insert((*name.unwrap_or(&"x")).to_owned(), strange_value(random));
        }
        (1 | 2, Value::Array(items)) => match items.first().cloned() {
            Some(first) if items.len() < 50 => items.push(first),
            _ => items.push(strange_value(random)),
        },
        (_, place) => *place = strange_value(random),
    }
    *body = to_bytes(&value);
}

/// Returns the JSON pointer of a random place, at most so many levels down.
fn random_place(mut value: &Value, depth: usize, random: &mut SmallRng) -> String {
    let mut pointer = String::new();
    for _ in 0..depth {
        let next = match value {
            Value::Object(members) if !members.is_empty() => {
                let member = members.iter().nth(random.random_range(0..members.len()));
                member.map(|(name, member)| (name.replace('~', "~0").replace('/', "~1"), member))
            }
            Value::Array(items) if !items.is_empty() => {
                let at = random.random_range(0..items.len());
                Some((at.to_string(), &items[at]))
            }
            _ => None,
        };
        let Some((segment, inner)) = next else { break };
        pointer.push('/');
        pointer.push_str(&segment);
        value = inner;
    }
    pointer
}

fn strange_value(random: &mut SmallRng) -> Value {
    match random.random_range(0..16) {
        0 => Value::Null,
        1 => json!(""),
        2 => json!("x".repeat(LONG)),
        3 => json!(-1),
        4 => json!(i64::MAX),
        5 => json!(u64::MAX),
        6 => json!(1e300),
        7 => json!(0.5),
        8 => json!(true),
        9 => json!([]),
        10 => json!({}),
        11 => json!([null, {}, [], "", 0]),
        12 => (0..DEEP).fold(json!(1), |inner, _| Value::Array(vec![inner])),
        13 => json!("\u{0}\u{202e}\u{ffff}"),
        14 => json!("9".repeat(400)),
        _ => {
            let members = (0..200).map(|index| (format!("k{index}"), json!(index)));
            Value::Object(members.collect::<Map<_, _>>())
        }
    }
}

/// Writes a value without recursion: what is nested deeply must not end this program.
fn to_bytes(value: &Value) -> Vec<u8> {
    // Deep values are arrays within arrays; serde_json writes those on a stack of its own size.
    std::thread::scope(|scope| {
        let writer =
            std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(scope, || value.to_string());
        writer.ok().and_then(|writer| writer.join().ok()).unwrap_or_default().into_bytes()
    })
}
