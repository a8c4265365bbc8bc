//! Parameters of operations.

use super::descriptions::Descriptions;

/// A path or query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) in_path: bool,
    /// The operations whose parameter of this name has a description of its own; empty for most.
    context: &'static str,
}

const fn query(name: &'static str, kind: &'static str) -> Parameter {
    Parameter { name, kind, in_path: false, context: "" }
}

const fn path(name: &'static str) -> Parameter {
    Parameter { name, kind: "string", in_path: true, context: "path" }
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

pub(super) const NAME: Parameter = path("name");
pub(super) const NAMESPACE: Parameter = path("namespace");
pub(super) const PATH: Parameter = path("path");
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
    text("shardSelector"),
    number("timeoutSeconds"),
    switch("watch"),
];

/// Kubernetes publishes the options of a get of custom kinds only.
pub(super) const READ_CUSTOM: &[Parameter] = &[text("resourceVersion")];

/// Parameters by which kubectl decides to leave dry runs and validation to the server.
pub(super) const WRITE: &[Parameter] = &[text("dryRun"), text("fieldManager"), text("fieldValidation")];

pub(super) const PATCH: &[Parameter] =
    &[text("dryRun"), text("fieldManager").of("patch"), text("fieldValidation"), switch("force")];

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

/// Subresources whose parameters are described otherwise than others of the same name.
const CONTEXTS: &[&str] = &[
    "nodes/proxy",
    "pods/attach",
    "pods/exec",
    "pods/log",
    "pods/portforward",
    "pods/proxy",
    "services/proxy",
];

/// Returns the context of a subresource's parameters.
pub(super) fn context(resource: &str, subresource: &str) -> &'static str {
    let is_it = |context: &&&str| context.split_once('/') == Some((resource, subresource));
    CONTEXTS.iter().find(is_it).copied().unwrap_or_default()
}

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
    /// Returns the parameter of some operations.
    pub(super) const fn of(self, context: &'static str) -> Self {
        Self { context, ..self }
    }

    /// Returns Kubernetes' description of the parameter of an operation on a kind.
    pub(super) fn description(&self, words: &Descriptions<'_>, kind: &str) -> String {
        if self.name == "name" {
            return format!("name of the {kind}");
        }
        let own = words.of(&format!("parameter {}", self.context), self.name);
        own.or_else(|| words.of("parameter", self.name)).unwrap_or_default()
    }

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

#[cfg(test)]
mod tests {
    use super::{super::descriptions::Text, *};

    #[test]
    fn every_parameter_is_described() {
        let text = Text::open();
        let words = text.index();
        let connecting = CONNECT.iter().map(|(_, list)| *list);
        let lists = [LIST, WRITE, PATCH, DELETE, LOG, &[NAME, NAMESPACE, PATH, PRETTY]];
        for parameter in lists.into_iter().chain(connecting).flatten() {
            assert!(
                !parameter.description(&words, "Pod").is_empty(),
                "{} has no description",
                parameter.name
            );
        }
        let of = |parameter: Parameter| parameter.description(&words, "Pod");
        assert_eq!(of(NAME), "name of the Pod");
        assert_ne!(of(text_of("container", "pods/log")), of(text_of("container", "pods/exec")));
        assert_ne!(of(text_of("fieldManager", "patch")), of(text_of("fieldManager", "")));
    }

    fn text_of(name: &'static str, context: &'static str) -> Parameter {
        super::text(name).of(context)
    }
}
