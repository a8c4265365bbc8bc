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

/// Descriptions by name. A name means the same wherever it is used, except `path`.
const DESCRIPTIONS: &[(&str, &str)] = &[
    (
        "allowWatchBookmarks",
        "Asks a watch for events of type BOOKMARK. Such an event has only a resourceVersion: the watch has sent every \
         change up to it. The server decides when to send one. Has no effect without watch.",
    ),
    (
        "command",
        "Program to run and its arguments, one in each parameter of this name. It is not run in a shell.",
    ),
    ("container", "Container of the pod. May be left out if the pod has one container only."),
    (
        "continue",
        "Token of the next page, from metadata.continue of the page before. The other parameters must be the same as \
         for that page. A token expires, which is answered with 410 and sometimes with a token that goes on at a newer \
         state. Cannot be used with watch.",
    ),
    ("dryRun", "Runs every stage of the request but does not store anything. The only value is All."),
    (
        "fieldManager",
        "Name of the program or person that makes the change, for managedFields: up to 128 printable characters. Required by apply; else it defaults to the first part of the User-Agent.",
    ),
    (
        "fieldSelector",
        "Selects objects by the values of fields, such as metadata.name=a. Every kind has its own fields.",
    ),
    (
        "fieldValidation",
        "Handling of fields that are unknown or given twice: Ignore drops them, Warn (the default) drops them with a \
         warning for each, Strict refuses the request and names them all.",
    ),
    ("follow", "Goes on sending the log as it is written."),
    ("force", "Lets an apply take over fields that others manage. For apply only."),
    (
        "gracePeriodSeconds",
        "Seconds before the object is deleted. 0 deletes it at once. Without it, the kind or the object decides.",
    ),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "Deletes an object that cannot be read from the store, without its finalizers and preconditions. This can break \
         the cluster.",
    ),
    ("insecureSkipTLSVerifyBackend", "Does not verify the certificate of the node that has the log."),
    (
        "labelSelector",
        "Selects objects by labels, such as app=web,tier!=cache. Without it, all are selected.",
    ),
    (
        "limit",
        "Largest number of objects in the answer. If there are more, metadata.continue has a token for the next page. \
         Pages of one list show one state of the collection.",
    ),
    ("limitBytes", "Largest number of bytes of the log to send."),
    ("name", "Name of the object."),
    ("namespace", "Namespace of the object or objects."),
    (
        "orphanDependents",
        "Deprecated; use propagationPolicy. If true, dependents are kept and lose this owner.",
    ),
    ("path", "Path to request from the target of the proxy."),
    ("ports", "Ports to forward. WebSockets name them here, SPDY by stream."),
    (
        "pretty",
        "Indents the JSON or YAML of the answer if true. Browsers and curl get indented answers by default.",
    ),
    ("previous", "Sends the log of the container's run before this one."),
    (
        "propagationPolicy",
        "Treatment of dependents: Orphan keeps them, Background deletes them after the object, Foreground before it. \
         The default depends on the kind and on the finalizers of the object.",
    ),
    (
        "resourceVersion",
        "Version of the state to answer with. Unset is the newest, 0 any, another one is not older than it, unless \
         resourceVersionMatch says otherwise. A watch sends the changes after it.",
    ),
    (
        "resourceVersionMatch",
        "Way in which resourceVersion applies to a list: Exact or NotOlderThan. Needs resourceVersion.",
    ),
    (
        "sendInitialEvents",
        "Starts a watch with an event for each object there is, then a bookmark with the annotation \
         k8s.io/initial-events-end, then changes. Needs resourceVersionMatch=NotOlderThan.",
    ),
    ("sinceSeconds", "Sends log lines of the last so many seconds."),
    ("stderr", "Connects the standard error of the container."),
    ("stdin", "Connects the standard input of the container."),
    ("stdout", "Connects the standard output of the container."),
    ("stream", "Stream of the log to send: All, Stdout or Stderr."),
    ("tailLines", "Number of lines at the end of the log to send; all of them if unset."),
    ("timeoutSeconds", "Seconds after which a list or watch ends, whatever it is doing."),
    ("timestamps", "Puts the time in front of each line of the log."),
    ("tty", "Runs the command with a terminal."),
    (
        "watch",
        "Streams changes of the objects as add, update and remove events. Give a resourceVersion to begin at.",
    ),
];

impl Parameter {
    /// Returns a sentence about the parameter.
    pub(super) fn description(&self) -> &'static str {
        let found = DESCRIPTIONS.iter().find(|(name, _)| *name == self.name);
        found.map_or("", |(_, description)| description)
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
    use super::*;

    #[test]
    fn every_parameter_is_described() {
        let connecting = CONNECT.iter().map(|(_, list)| *list);
        let lists = [LIST, WRITE, PATCH, DELETE, LOG, &[NAME, NAMESPACE, PATH, PRETTY]];
        for parameter in lists.into_iter().chain(connecting).flatten() {
            assert!(!parameter.description().is_empty(), "{} has no description", parameter.name);
        }
    }
}
