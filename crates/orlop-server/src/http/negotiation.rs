//! Content negotiation: the encoding and transform that the client accepts and the server offers.

use http::{HeaderMap, header};
use orlop_api::{protobuf, status::Status};

/// Media types of objects, as error messages list them.
pub const MEDIA_TYPES: &[&str] = &["application/json", "application/yaml", protobuf::MEDIA_TYPE];

/// Media types of watches, as error messages and OpenAPI list them.
pub const JSON_STREAM: &str = "application/json;stream=watch";
pub const PROTOBUF_STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// Media type of server-side apply.
pub const APPLY: &str = "application/apply-patch+yaml";

/// Representations that an endpoint offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// Table and PartialObjectMetadata.
    pub transforms: bool,
    /// Protobuf of whole objects. PartialObjectMetadata is offered in protobuf for every kind.
    pub protobuf: bool,
    /// Media types that kube-apiserver's router lists for the endpoint; empty if it has no router. A client that
    /// accepts none of them gets the router's error.
    pub routed: &'static [&'static str],
}

/// Encoding of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// Compact JSON.
    #[default]
    Json,
    /// Indented JSON.
    PrettyJson,
    /// YAML.
    Yaml,
    /// Protobuf in Kubernetes' envelope.
    Protobuf,
}

impl Encoding {
    /// Returns the media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json | Self::PrettyJson => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => protobuf::MEDIA_TYPE,
        }
    }
}

/// Transform of an object before it is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transform {
    /// The object itself.
    #[default]
    Whole,
    /// Table, in a version of `meta.k8s.io`.
    Table(&'static str),
    /// PartialObjectMetadata, in a version of `meta.k8s.io`.
    Metadata(&'static str),
}

/// Result of content negotiation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// The encoding.
    pub encoding: Encoding,
    /// The transform.
    pub transform: Transform,
}

impl Negotiated {
    /// Returns true for JSON of whole objects, which is copied from stored bytes.
    pub fn is_plain(self) -> bool {
        self.encoding == Encoding::Json && self.transform == Transform::Whole
    }
}

/// A clause of an Accept header.
pub(crate) struct Clause<'a> {
    pub(crate) media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl Clause<'_> {
    /// Returns the value of a parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

/// Parses an Accept header, highest quality first.
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

/// Negotiates the encoding and transform of a response.
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

/// Returns the error of kube-apiserver's router if the client accepts none of its media types.
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

/// Returns the transform of a clause; `None` if it is not offered.
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

/// Returns true for interactive clients, which get indented JSON by default, as in Kubernetes.
fn wants_indentation(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|person| agent.starts_with(person))
}

/// Returns the media type of a body without parameters. Case is ignored for objects, not for patches, as in
/// Kubernetes.
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
    fn content_type_case_is_ignored_for_objects_only() {
        let of = |text: &str| {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, text.parse().unwrap())]);
            content_type(&headers).to_owned()
        };
        assert_eq!(of("Application/JSON; charset=utf-8"), "application/json");
        assert_eq!(of("application/Merge-Patch+json"), "application/Merge-Patch+json");
        assert_eq!(content_type(&HeaderMap::new()), "");
    }

    #[test]
    fn first_acceptable_clause_wins() {
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
