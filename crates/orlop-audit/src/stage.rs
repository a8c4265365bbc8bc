//! Levels and stages.

use std::fmt;

/// Amount of a request that is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// User, time, resource, verb and result.
    Metadata,
    /// The above and the request's object.
    Request,
    /// The above and the response's object.
    RequestResponse,
}

impl Level {
    /// All levels, from the least to the most.
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }

    /// Returns the level of a name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Point in a request's life at which an event is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The user is known; no handler has run.
    RequestReceived,
    /// The headers of a long-running response are sent.
    ResponseStarted,
    /// The response is complete.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 4] =
        [Self::RequestReceived, Self::ResponseStarted, Self::ResponseComplete, Self::Panic];

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageSet(u8);

impl StageSet {
    /// Returns true if the set has a stage.
    pub fn contains(self, stage: Stage) -> bool {
        self.0 & Self::from(stage).0 != 0
    }

    /// Returns the stages of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl From<Stage> for StageSet {
    fn from(stage: Stage) -> Self {
        Self(1 << stage as u8)
    }
}

impl FromIterator<Stage> for StageSet {
    fn from_iter<I: IntoIterator<Item = Stage>>(stages: I) -> Self {
        stages.into_iter().fold(Self::default(), |set, stage| set.union(stage.into()))
    }
}
