//! Verbs of requests.

use std::fmt;

use http::Method;

/// The verb of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads an object, or a path that is not a resource.
    #[default]
    Get,
    /// Reads a collection.
    List,
    /// Watches a collection or an object.
    Watch,
    /// Creates an object, or an object of a subresource.
    Create,
    /// Replaces an object.
    Update,
    /// Patches or applies an object.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes a collection.
    DeleteCollection,
    /// Proxies to a pod, service or node by the legacy path.
    Proxy,
    /// Any other: the method of a request that is not for a resource, in lower case, or a verb that only
    /// authorization knows, such as `bind`.
    Other(Box<str>),
}

impl Verb {
    /// Returns the verb of a method on a resource.
    pub fn of_resource(method: &Method) -> Self {
        match *method {
            Method::POST => Self::Create,
            Method::GET | Method::HEAD => Self::Get,
            Method::PUT => Self::Update,
            Method::PATCH => Self::Patch,
            Method::DELETE => Self::Delete,
            _ => Self::none(),
        }
    }

    /// Returns the verb of a method on a path that is not a resource.
    pub fn of_path(method: &Method) -> Self {
        match *method {
            Method::GET => Self::Get,
            Method::PATCH => Self::Patch,
            Method::DELETE => Self::Delete,
            Method::POST => Self::Other("post".into()),
            Method::HEAD => Self::Other("head".into()),
            Method::PUT => Self::Other("put".into()),
            Method::OPTIONS => Self::Other("options".into()),
            _ => Self::none(),
        }
    }

    /// Returns the verb of a method that has none.
    pub fn none() -> Self {
        Self::Other(Box::default())
    }

    /// Returns the name, such as `deletecollection`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Proxy => "proxy",
            Self::Other(name) => name,
        }
    }

    /// Returns true if a request with this verb changes nothing.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Get | Self::List | Self::Watch => true,
            Self::Other(name) => &**name == "head",
            _ => false,
        }
    }
}

impl From<&str> for Verb {
    fn from(name: &str) -> Self {
        match name {
            "get" => Self::Get,
            "list" => Self::List,
            "watch" => Self::Watch,
            "create" => Self::Create,
            "update" => Self::Update,
            "patch" => Self::Patch,
            "delete" => Self::Delete,
            "deletecollection" => Self::DeleteCollection,
            "proxy" => Self::Proxy,
            other => Self::Other(other.into()),
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
