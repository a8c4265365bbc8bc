//! The configuration file: `apiserver.config.k8s.io` TracingConfiguration.

use std::path::Path;

use orlop_api::{
    decode::{self, StrictOrder},
    field_error::{FieldError, FieldPath, aggregate},
};
use serde::Deserialize;

/// Larger files are not configurations.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Collector that is used unless another is named.
const ENDPOINT: &str = "localhost:4317";
const PER_MILLION: i64 = 1_000_000;
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];

/// A configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// Tracing of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingConfig {
    /// The collector: `host:port` or `unix:///path`.
    pub endpoint: String,
    /// Requests of a million that are traced, besides those whose client traces them.
    pub sampling_rate_per_million: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConfigFile {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    endpoint: Option<String>,
    sampling_rate_per_million: Option<i64>,
}

impl TracingConfig {
    /// Reads a configuration file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let failed = |why: &dyn std::fmt::Display| {
            let path = path.display().to_string();
            ConfigError(format!("unable to read tracing configuration from {path:?}: {why}"))
        };
        let metadata = std::fs::metadata(path).map_err(|error| failed(&error))?;
        if metadata.len() > FILE_BYTES_MAX {
            return Err(failed(&"the file is too large"));
        }
        let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
        Self::parse(&bytes).map_err(|error| failed(&error))
    }

    /// Parses a configuration in YAML or JSON.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        let undecodable =
            |why: String| ConfigError(format!("unable to decode tracing configuration data: {why}"));
        let decoded = decode::yaml_or_json(bytes).map_err(|error| undecodable(error.to_string()))?;
        let duplicates = decoded.strict_errors(bytes, Vec::new(), StrictOrder::Document);
        if !duplicates.is_empty() {
            return Err(undecodable(decode::strict_error(&duplicates)));
        }
        let text = |field: &str| decoded.value.get(field).and_then(|text| text.as_str()).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if !VERSIONS.contains(&api_version) || kind != "TracingConfiguration" {
            return Err(undecodable(format!("no kind {kind:?} is registered for version {api_version:?}")));
        }
        let file: ConfigFile = serde_json::from_value(decoded.value)
            .map_err(|error| undecodable(format!("strict decoding error: {error}")))?;
        let errors = file.validate();
        if !errors.is_empty() {
            return Err(ConfigError(aggregate(&errors)));
        }
        let rate = u32::try_from(file.sampling_rate_per_million.unwrap_or(0)).unwrap_or(0);
        let endpoint = file.endpoint.unwrap_or_else(|| ENDPOINT.to_owned());
        Ok(Self { endpoint, sampling_rate_per_million: rate })
    }
}

impl ConfigFile {
    fn validate(&self) -> Vec<FieldError> {
        let (rate, endpoint) = (FieldPath::root("samplingRatePerMillion"), FieldPath::root("endpoint"));
        let mut errors = Vec::new();
        if let Some(given) = self.sampling_rate_per_million {
            let why = match given {
                ..0 => Some("sampling rate must be positive"),
                0..=PER_MILLION => None,
                _ => Some("sampling rate per million must be less than or equal to one million"),
            };
            errors.extend(why.map(|why| FieldError::invalid(&rate, given, why)));
        }
        if let Some(given) = &self.endpoint {
            let scheme = given.split_once("//").map_or("dns", |(scheme, _)| scheme.trim_end_matches(':'));
            if !matches!(scheme, "dns" | "unix") {
                let why = format!("unsupported scheme: {scheme}.  Options are none, dns, or unix.");
                errors.push(FieldError::invalid(&endpoint, given.as_str(), why));
            }
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(rest: &str) -> Result<TracingConfig, String> {
        let text = format!("kind: TracingConfiguration\napiVersion: apiserver.config.k8s.io/v1\n{rest}");
        TracingConfig::parse(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn configurations_are_validated_as_in_kubernetes() {
        let default = TracingConfig { endpoint: ENDPOINT.to_owned(), sampling_rate_per_million: 0 };
        assert_eq!(parsed(""), Ok(default));
        assert_eq!(parsed("samplingRatePerMillion: 100").unwrap().sampling_rate_per_million, 100);
        for (rest, part) in [
            ("samplingRatePerMillion: -1", "Invalid value: -1: sampling rate must be positive"),
            ("samplingRatePerMillion: 1000001", "must be less than or equal to one million"),
            ("endpoint: 'http://x'", "unsupported scheme: http."),
            ("endpiont: x", "unknown field `endpiont`"),
        ] {
            let refused = parsed(rest).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
        assert!(TracingConfig::parse(b"kind: Policy").is_err());
    }
}
