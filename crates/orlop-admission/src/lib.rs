//! Admission: changes or refuses writes after authorization and before storage.

pub mod matching;

/// The operation that is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of an object: update, patch or apply.
    Update,
    /// A deletion. There is no new object.
    Delete,
    /// A connection, such as exec. The object is its options.
    Connect,
}

impl Operation {
    /// Returns the name in AdmissionReview, such as `CREATE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}
