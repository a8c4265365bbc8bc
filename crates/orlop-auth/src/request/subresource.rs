//! Subresources of requests.

/// A subresource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subresource {
    /// `status`
    Status,
    /// `scale`
    Scale,
    /// `binding`
    Binding,
    /// `eviction`
    Eviction,
    /// `token`
    Token,
    /// `log`
    Log,
    /// `exec`
    Exec,
    /// `attach`
    Attach,
    /// `portforward`
    PortForward,
    /// `proxy`
    Proxy,
    /// `finalize`
    Finalize,
    /// `approval`
    Approval,
    /// `ephemeralcontainers`
    EphemeralContainers,
    /// `resize`
    Resize,
    /// Any other.
    Other(Box<str>),
}

impl Subresource {
    /// Returns the name, as in paths.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Binding => "binding",
            Self::Eviction => "eviction",
            Self::Token => "token",
            Self::Log => "log",
            Self::Exec => "exec",
            Self::Attach => "attach",
            Self::PortForward => "portforward",
            Self::Proxy => "proxy",
            Self::Finalize => "finalize",
            Self::Approval => "approval",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Resize => "resize",
            Self::Other(name) => name,
        }
    }

    /// Returns true if its object is the resource's own, and not one of another kind such as Scale.
    pub fn is_object(&self) -> bool {
        matches!(
            self,
            Self::Status | Self::Finalize | Self::Approval | Self::EphemeralContainers | Self::Resize
        )
    }

    /// Returns true if it connects to what an object stands for.
    pub fn is_connect(&self) -> bool {
        matches!(self, Self::Exec | Self::Attach | Self::PortForward | Self::Proxy)
    }
}

impl From<&str> for Subresource {
    fn from(name: &str) -> Self {
        match name {
            "status" => Self::Status,
            "scale" => Self::Scale,
            "binding" => Self::Binding,
            "eviction" => Self::Eviction,
            "token" => Self::Token,
            "log" => Self::Log,
            "exec" => Self::Exec,
            "attach" => Self::Attach,
            "portforward" => Self::PortForward,
            "proxy" => Self::Proxy,
            "finalize" => Self::Finalize,
            "approval" => Self::Approval,
            "ephemeralcontainers" => Self::EphemeralContainers,
            "resize" => Self::Resize,
            other => Self::Other(other.into()),
        }
    }
}
