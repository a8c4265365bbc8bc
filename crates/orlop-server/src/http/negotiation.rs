//! Which form an answer takes: what the client accepts, of what there is.

use http::{HeaderMap, header};
use orlop_api::{protobuf, status::Status};

/// Every media type that can be answered, as refusals list them.
pub const MEDIA_TYPES: &[&str] = &["application/json", "application/yaml", protobuf::MEDIA_TYPE];

/// What a watch can be answered as, as refusals and OpenAPI list it.
pub const JSON_STREAM: &str = "application/json;stream=watch";
pub const PROTOBUF_STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// What there is to choose from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// Tables and metadata alone.
    pub transforms: bool,
    /// Protobuf of whole objects. Metadata alone can be had in protobuf of every kind.
    pub protobuf: bool,
    /// What the endpoint can be had as in the words of Kubernetes' router, where there is one before it: what accepts
    /// none of these is told them.
    pub routed: &'static [&'static str],
}

/// The encoding of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// JSON, on one line.
    #[default]
    Json,
    /// JSON, indented.
    PrettyJson,
    /// YAML.
    Yaml,
    /// Protobuf, in Kubernetes' envelope.
    Protobuf,
}

impl Encoding {
    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json | Self::PrettyJson => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => protobuf::MEDIA_TYPE,
        }
    }
}

/// What is made of an object before it is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transform {
    /// Nothing.
    #[default]
    Whole,
    /// A table for people, in a version of `meta.k8s.io`.
    Table(&'static str),
    /// Only the metadata.
    Metadata(&'static str),
}

/// How to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// The encoding.
    pub encoding: Encoding,
    /// The transform.
    pub transform: Transform,
}

impl Negotiated {
    /// Whether stored bytes can be answered as they are.
    pub fn is_plain(self) -> bool {
        self.encoding == Encoding::Json && self.transform == Transform::Whole
    }
}

/// One clause of an Accept header.
pub(crate) struct Clause<'a> {
    pub(crate) media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl Clause<'_> {
    /// What it says of something.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

/// The clauses of an Accept header, the most wanted first.
pub(crate) fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept
        .split(',')
        .filter(|clause| !clause.trim().is_empty())
        .map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            let mut parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
            let quality = parameters.iter().find(|(name, _)| *name == "q").and_then(|(_, q)| q.parse().ok());
            parameters.retain(|(name, _)| *name != "q");
            Clause { media_type, parameters, quality: quality.unwrap_or(1.0) }
        })
        .collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

/// Chooses how to answer.
pub fn negotiate(headers: &HeaderMap, pretty: Option<&str>, offers: Offers) -> Result<Negotiated, Status> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let indented = match pretty {
        Some(value) => !matches!(value, "false" | "0"),
        None => wants_indentation(headers),
    };
    let json = if indented { Encoding::PrettyJson } else { Encoding::Json };
    if accept.trim().is_empty() {
        return Ok(Negotiated { encoding: json, transform: Transform::Whole });
    }
    for clause in clauses(accept) {
        let encoding = match clause.media_type {
            "application/json" | "*/*" | "application/*" => json,
            "application/yaml" => Encoding::Yaml,
            protobuf::MEDIA_TYPE => Encoding::Protobuf,
            _ => continue,
        };
        if let Some(transform) = transform(&clause, offers.transforms) {
            let offered = match transform {
                Transform::Whole => offers.protobuf,
                Transform::Table(_) => false,
                Transform::Metadata(_) => true,
            };
            if encoding == Encoding::Protobuf && !offered {
                continue;
            }
            let asks_for_indentation =
                clause.parameters.iter().any(|(name, value)| *name == "pretty" && *value != "0");
            let encoding = if asks_for_indentation && encoding == Encoding::Json {
                Encoding::PrettyJson
            } else {
                encoding
            };
            return Ok(Negotiated { encoding, transform });
        }
    }
    check_routed(headers, offers.routed)?;
    Err(Status::not_acceptable(MEDIA_TYPES))
}

/// Whether Kubernetes' router would find something that a client accepts; without a router, anything is.
pub fn check_routed(headers: &HeaderMap, routed: &'static [&'static str]) -> Result<(), Status> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let accepted = clauses(accept);
    let passes = |clause: &Clause<'_>| {
        matches!(clause.media_type, "*/*" | "application/*") || routed.contains(&clause.media_type)
    };
    if routed.is_empty() || accepted.is_empty() || accepted.iter().any(passes) {
        return Ok(());
    }
    Err(Status::no_representation(routed))
}

/// The transform of a clause; `None` if it cannot be had.
fn transform(clause: &Clause<'_>, offered: bool) -> Option<Transform> {
    let parameter = |name: &str| clause.parameter(name);
    let Some(wanted) = parameter("as") else { return Some(Transform::Whole) };
    if !offered || parameter("g") != Some("meta.k8s.io") {
        return None;
    }
    let version = match parameter("v") {
        Some("v1") => "meta.k8s.io/v1",
        Some("v1beta1") => "meta.k8s.io/v1beta1",
        _ => return None,
    };
    match wanted {
        "Table" => Some(Transform::Table(version)),
        "PartialObjectMetadata" | "PartialObjectMetadataList" => Some(Transform::Metadata(version)),
        _ => None,
    }
}

/// People at a terminal or a browser get indentation without asking.
fn wants_indentation(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|person| agent.starts_with(person))
}

/// The media type of a body, without its parameters. Those of objects may be written in any case; Kubernetes takes
/// patches' as they are.
pub fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let named = value.split(';').next().unwrap_or_default().trim();
    MEDIA_TYPES.iter().find(|known| known.eq_ignore_ascii_case(named)).copied().unwrap_or(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(accept: &str) -> Result<Negotiated, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        negotiate(&headers, None, Offers { transforms: true, protobuf: true, routed: &[] })
            .map_err(|status| status.code)
    }

    #[test]
    fn the_media_type_of_a_body_is_read_as_kubernetes_does() {
        let of = |text: &str| {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, text.parse().unwrap())]);
            content_type(&headers).to_owned()
        };
        assert_eq!(of("Application/JSON; charset=utf-8"), "application/json");
        assert_eq!(of("application/Merge-Patch+json"), "application/Merge-Patch+json");
        assert_eq!(content_type(&HeaderMap::new()), "");
    }

    #[test]
    fn the_first_clause_that_can_be_met_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(negotiated(table).unwrap().transform, Transform::Table("meta.k8s.io/v1"));
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        assert_eq!(negotiated(metadata).unwrap().transform, Transform::Metadata("meta.k8s.io/v1"));
        assert_eq!(
            negotiated("application/yaml;q=0.5,application/json;q=0.4").unwrap().encoding,
            Encoding::Yaml
        );
        assert!(negotiated("*/*").unwrap().is_plain());
        let protobuf = negotiated("application/vnd.kubernetes.protobuf,application/json").unwrap();
        assert_eq!(protobuf.encoding, Encoding::Protobuf);
        assert_eq!(negotiated("application/xml"), Err(406));
        assert_eq!(negotiated("application/json;as=Nothing;g=meta.k8s.io;v=v1"), Err(406));
    }
}
