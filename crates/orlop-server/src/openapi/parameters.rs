//! Parameters of operations.

/// A path or query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) in_path: bool,
}

const fn query(name: &'static str, kind: &'static str) -> Parameter {
    Parameter { name, kind, in_path: false }
}

const fn text(name: &'static str) -> Parameter {
    query(name, "string")
}

const fn switch(name: &'static str) -> Parameter {
    query(name, "boolean")
}

const fn number(name: &'static str) -> Parameter {
    query(name, "integer")
}

pub(super) const NAME: Parameter = Parameter { name: "name", kind: "string", in_path: true };
pub(super) const NAMESPACE: Parameter = Parameter { name: "namespace", kind: "string", in_path: true };
pub(super) const PATH: Parameter = Parameter { name: "path", kind: "string", in_path: true };
pub(super) const PRETTY: Parameter = text("pretty");

pub(super) const LIST: &[Parameter] = &[
    switch("allowWatchBookmarks"),
    text("continue"),
    text("fieldSelector"),
    text("labelSelector"),
    number("limit"),
    text("resourceVersion"),
    text("resourceVersionMatch"),
    switch("sendInitialEvents"),
    number("timeoutSeconds"),
    switch("watch"),
];

/// Parameters by which kubectl decides to leave dry runs and validation to the server.
pub(super) const WRITE: &[Parameter] = &[text("dryRun"), text("fieldManager"), text("fieldValidation")];

pub(super) const PATCH: &[Parameter] =
    &[text("dryRun"), text("fieldManager"), text("fieldValidation"), switch("force")];

pub(super) const DELETE: &[Parameter] = &[
    text("dryRun"),
    number("gracePeriodSeconds"),
    switch("ignoreStoreReadErrorWithClusterBreakingPotential"),
    switch("orphanDependents"),
    text("propagationPolicy"),
];

pub(super) const LOG: &[Parameter] = &[
    text("container"),
    switch("follow"),
    switch("insecureSkipTLSVerifyBackend"),
    number("limitBytes"),
    switch("previous"),
    number("sinceSeconds"),
    text("stream"),
    number("tailLines"),
    switch("timestamps"),
];

const STREAMS: &[Parameter] =
    &[text("container"), switch("stderr"), switch("stdin"), switch("stdout"), switch("tty")];

/// Parameters of subresources that connect.
pub(super) const CONNECT: &[(&str, &[Parameter])] = &[
    ("attach", STREAMS),
    (
        "exec",
        &[
            text("command"),
            text("container"),
            switch("stderr"),
            switch("stdin"),
            switch("stdout"),
            switch("tty"),
        ],
    ),
    ("portforward", &[number("ports")]),
    ("proxy", &[text("path")]),
];

impl Parameter {
    /// Parameters of deletecollection, which does not watch.
    pub(super) fn not_of_deletecollection(&self) -> bool {
        !matches!(self.name, "allowWatchBookmarks" | "watch")
    }
}

/// Splits the parameters of operations into those that all share, which belong to the path, and the rest.
pub(super) fn shared(lists: &[Vec<Parameter>]) -> (Vec<Parameter>, Vec<Vec<Parameter>>) {
    let Some((first, others)) = lists.split_first() else { return (Vec::new(), Vec::new()) };
    let mut shared: Vec<Parameter> = first
        .iter()
        .filter(|parameter| others.iter().all(|list| list.contains(parameter)))
        .copied()
        .collect();
    shared.sort();
    let rest = |list: &Vec<Parameter>| {
        let mut rest: Vec<_> = list.iter().filter(|parameter| !shared.contains(parameter)).copied().collect();
        rest.sort();
        rest
    };
    let own = lists.iter().map(rest).collect();
    (shared, own)
}
