//! APIService objects, as far as the server acts on them.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

/// Group, version and resource of APIServices.
pub const GROUP: &str = "apiregistration.k8s.io";
/// See [`GROUP`].
pub const VERSION: &str = "v1";
/// See [`GROUP`].
pub const RESOURCE: &str = "apiservices";
/// Label of APIServices that the server registered: `onstart` or `true`.
pub const MANAGED_LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Type of the only condition.
pub const AVAILABLE: &str = "Available";
/// Port of a Service without one.
const DEFAULT_PORT: u16 = 443;

/// Way in which the server keeps an APIService.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Managed {
    /// Somebody else keeps it.
    No,
    /// Restored at each start: a built-in group version.
    OnStart,
    /// Restored whenever it changes: a group version of CustomResourceDefinitions.
    Always,
}

impl Managed {
    /// Returns the value of the label; `None` without one.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::OnStart => Some("onstart"),
            Self::Always => Some("true"),
        }
    }
}

/// The server behind one or several APIServices, and how its certificate is verified.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendKey {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Port of the Service.
    pub port: u16,
    /// CAs in PEM; empty for those of the system.
    pub ca_bundle: Vec<u8>,
    /// Accepts any certificate.
    pub insecure_skip_tls_verify: bool,
}

impl BackendKey {
    /// Returns the name that the server's certificate must have.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

/// The Available condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Availability {
    /// `True`, `False`, `Unknown`; empty if the condition is absent.
    pub status: String,
    /// The reason.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// An APIService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiService {
    /// Its name: `version.group`.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Least priority of the group.
    pub group_priority: i64,
    /// Priority of the version within its group.
    pub version_priority: i64,
    /// The server that serves it; `None` for this one.
    pub backend: Option<BackendKey>,
    /// Way in which the server keeps it.
    pub managed: Managed,
    /// The Available condition.
    pub availability: Availability,
    /// Time at which the condition's status last changed, as in the object.
    pub transitioned: String,
}

impl ApiService {
    /// Reads an object. Anything that is absent or of another type is empty: the object was validated when it was
    /// written.
    pub fn parse(name: &str, object: &Value) -> Self {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let integer = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
        let service = object.pointer("/spec/service").filter(|service| service.is_object());
        let backend = service.map(|service| BackendKey {
            namespace: service["namespace"].as_str().unwrap_or_default().to_owned(),
            name: service["name"].as_str().unwrap_or_default().to_owned(),
            port: service["port"].as_u64().and_then(|port| port.try_into().ok()).unwrap_or(DEFAULT_PORT),
            ca_bundle: STANDARD.decode(text("/spec/caBundle")).unwrap_or_default(),
            insecure_skip_tls_verify: object["spec"]["insecureSkipTLSVerify"] == true,
        });
        let managed = match object["metadata"]["labels"][MANAGED_LABEL].as_str() {
            Some("onstart") => Managed::OnStart,
            Some("true") => Managed::Always,
            _ => Managed::No,
        };
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let condition = conditions.into_iter().flatten().find(|condition| condition["type"] == AVAILABLE);
        let field = |name: &str| {
            condition.and_then(|condition| condition[name].as_str()).unwrap_or_default().to_owned()
        };
        Self {
            name: name.to_owned(),
            uid: text("/metadata/uid"),
            group: text("/spec/group"),
            version: text("/spec/version"),
            group_priority: integer("/spec/groupPriorityMinimum"),
            version_priority: integer("/spec/versionPriority"),
            backend,
            managed,
            availability: Availability {
                status: field("status"),
                reason: field("reason"),
                message: field("message"),
            },
            transitioned: field("lastTransitionTime"),
        }
    }

    /// Returns true if the server behind it has passed all checks.
    pub fn is_available(&self) -> bool {
        self.availability.status == "True"
    }

    /// Returns the path of its discovery document.
    pub fn path(&self) -> String {
        path_of(&self.group, &self.version)
    }
}

/// Returns the path of the discovery document of a group version.
pub fn path_of(group: &str, version: &str) -> String {
    match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    }
}

/// Returns the name of the APIService of a group version.
pub fn name_of(group: &str, version: &str) -> String {
    format!("{version}.{group}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_read() {
        let object = json!({
            "metadata": {"labels": {MANAGED_LABEL: "onstart"}},
            "spec": {"group": "a.example", "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 5,
                "caBundle": "Y2E=", "service": {"namespace": "n", "name": "s"}},
            "status": {"conditions": [{"type": "Available", "status": "True", "reason": "Passed",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        let read = ApiService::parse("v1.a.example", &object);
        let backend = read.backend.clone().unwrap();
        assert_eq!((backend.port, backend.ca_bundle.as_slice()), (443, &b"ca"[..]));
        assert_eq!(backend.server_name(), "s.n.svc");
        assert!(read.is_available() && read.managed == Managed::OnStart);
        assert_eq!(read.path(), "/apis/a.example/v1");
        let empty = ApiService::parse("x", &json!(1));
        assert!(empty.backend.is_none() && !empty.is_available() && empty.managed == Managed::No);
    }
}
