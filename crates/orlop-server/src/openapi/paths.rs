//! Paths, operations and parameters of each kind, independent of the OpenAPI version.

use orlop_api::group_version::{GroupVersion, GroupVersionKind};
use serde_json::{Map, Value, json};

use super::{
    descriptions::Descriptions,
    parameters::{self, CONNECT, DELETE, LIST, LOG, PATCH, Parameter, WRITE},
    references::{META, kind_extension},
    schemas::Definition,
};
use crate::registry::{Kind, Subresource};

/// A path and its operations.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) path: String,
    pub(super) operations: Vec<Operation>,
}

/// An operation.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) id: String,
    pub(super) tag: String,
    pub(super) action: &'static str,
    /// The kind that is taken, of the subresource if there is one.
    pub(super) gvk: GroupVersionKind,
    /// The kind of the resource.
    kind: String,
    /// Empty for the resource itself.
    subresource: String,
    /// A list that is described as one that can be watched.
    watches: bool,
    /// Of a custom kind, which has no protobuf.
    pub(super) custom: bool,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Body,
    /// Response codes and their content.
    pub(super) answers: Vec<(u16, Content)>,
}

/// Encodes parts of a document of one OpenAPI version.
pub(super) trait Encoder {
    fn parameter(&mut self, parameter: &Parameter, description: String) -> Value;

    /// Encodes an operation with its own parameters.
    fn operation(&mut self, operation: &Operation, parameters: Vec<Value>) -> Value;
}

impl Path {
    /// Encodes the path and its operations. Parameters that all of them share belong to the path.
    pub(super) fn encode(&self, words: &Descriptions<'_>, encoder: &mut dyn Encoder) -> Value {
        let lists: Vec<_> = self.operations.iter().map(|operation| operation.parameters.clone()).collect();
        let (shared, own) = parameters::shared(&lists);
        let encode = |list: &[Parameter], kind: &str, encoder: &mut dyn Encoder| -> Vec<Value> {
            list.iter()
                .map(|parameter| encoder.parameter(parameter, parameter.description(words, kind)))
                .collect()
        };
        let mut item = Map::new();
        for (operation, own) in self.operations.iter().zip(own) {
            let parameters = encode(&own, &operation.gvk.kind, encoder);
            let mut made = encoder.operation(operation, parameters);
            made["description"] = operation.description(words).into();
            item.insert(operation.method.to_owned(), made);
        }
        if let Some(first) = self.operations.first().filter(|_| !shared.is_empty()) {
            item.insert("parameters".into(), encode(&shared, &first.gvk.kind, encoder).into());
        }
        Value::Object(item)
    }
}

impl Operation {
    /// Adds the responses, action and kind of the operation.
    pub(super) fn answer(&self, made: &mut Value, content: impl Fn(&Content) -> (&'static str, Value)) {
        let mut responses = Map::new();
        for (code, answered) in &self.answers {
            let (name, content) = content(answered);
            responses.insert(code.to_string(), json!({"description": super::reason(*code), name: content}));
        }
        responses.insert("401".into(), json!({"description": super::reason(401)}));
        made["responses"] = responses.into();
        if !self.action.is_empty() {
            made["x-kubernetes-action"] = self.action.into();
            made["x-kubernetes-group-version-kind"] = kind_extension(&self.gvk);
        }
    }

    /// Returns Kubernetes' description of the operation.
    fn description(&self, words: &Descriptions<'_>) -> String {
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        let template = words.of("operation", &format!("{}{slash}", self.action)).unwrap_or_default();
        let article = match self.kind.as_str() {
            plural if plural.ends_with('s') && !plural.ends_with("ss") => "",
            kind if kind.starts_with(['A', 'E', 'I', 'O', 'U', 'a', 'e', 'i', 'o', 'u']) => "an ",
            _ => "a ",
        };
        let template = if self.watches { template } else { template.replacen("list or watch ", "list ", 1) };
        template
            .replace("{article} ", article)
            .replace("{method}", &self.method.to_uppercase())
            .replace("{subresource}", &self.subresource)
            .replace("{kind}", &self.kind)
    }
}

/// Content of a request.
#[derive(Debug)]
pub(super) enum Body {
    Nothing,
    Object(String),
    DeleteOptions,
    Patch { strategic: bool },
}

/// Content of a response.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Object(String),
    /// A list or a watch.
    Stream(String),
    /// Any text.
    Text,
    Log,
}

/// Returns all paths of a kind.
pub(super) fn of(kind: &Kind) -> Vec<Path> {
    Paths { kind, gv: kind.gvk.group_version() }.all()
}

struct Paths<'a> {
    kind: &'a Kind,
    gv: GroupVersion,
}

impl Paths<'_> {
    fn all(&self) -> Vec<Path> {
        let base = super::base(&self.gv);
        let (kind, resource) = (self.kind, &self.kind.resource);
        let place = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let mut paths = vec![
            Path { path: format!("{base}{place}/{resource}"), operations: self.collection() },
            Path { path: format!("{base}{place}/{resource}/{{name}}"), operations: self.item() },
        ];
        if kind.namespaced && kind.allows("list") {
            let id = self.id("list", "", "ForAllNamespaces");
            let operations = vec![self.list(id, false)];
            paths.push(Path { path: format!("{base}/{resource}"), operations });
        }
        for subresource in &kind.subresources {
            let path = format!("{base}{place}/{resource}/{{name}}/{}", subresource.name);
            if subresource.name == "proxy" {
                let mut operations = self.subresource(subresource);
                for operation in &mut operations {
                    operation.id.push_str("WithPath");
                    operation.parameters.push(parameters::PATH);
                }
                paths.push(Path { path: format!("{path}/{{path}}"), operations });
            }
            paths.push(Path { path, operations: self.subresource(subresource) });
        }
        // As in Kubernetes, deprecated watches of custom kinds are not published.
        if kind.allows("watch") && !kind.flags.custom {
            let scope = if kind.namespaced { "Namespaced" } else { "" };
            let watched = [
                (
                    format!("{place}/{resource}"),
                    self.id("watch", scope, "List"),
                    "watchlist",
                    kind.namespaced,
                    false,
                ),
                (
                    format!("{place}/{resource}/{{name}}"),
                    self.id("watch", scope, ""),
                    "watch",
                    kind.namespaced,
                    true,
                ),
                (
                    format!("/{resource}"),
                    self.id("watch", "", "ListForAllNamespaces"),
                    "watchlist",
                    false,
                    false,
                ),
            ];
            let count = if kind.namespaced { 3 } else { 2 };
            for (path, id, action, namespaced, named) in watched.into_iter().take(count) {
                let operation = self.watch(id, action, namespaced, named);
                paths.push(Path { path: format!("{base}/watch{path}"), operations: vec![operation] });
            }
        }
        paths.retain(|path| !path.operations.is_empty());
        paths
    }

    /// Returns an operation id: `listAppsV1NamespacedDeployment`.
    fn id(&self, verb: &str, scope: &str, rest: &str) -> String {
        format!("{verb}{}{scope}{}{rest}", super::camel(&self.gv, true), self.kind.gvk.kind)
    }

    fn operation(
        &self,
        method: &'static str,
        id: String,
        action: &'static str,
        named: bool,
        own: &[Parameter],
    ) -> Operation {
        let mut parameters = own.to_vec();
        parameters.push(parameters::PRETTY);
        parameters.extend(named.then_some(parameters::NAME));
        parameters.extend(self.kind.namespaced.then_some(parameters::NAMESPACE));
        Operation {
            method,
            id,
            tag: super::tag(&self.gv),
            action,
            gvk: self.kind.gvk.clone(),
            kind: self.kind.gvk.kind.clone(),
            subresource: String::new(),
            watches: false,
            custom: self.kind.flags.custom,
            parameters,
            body: Body::Nothing,
            answers: Vec::new(),
        }
    }

    fn list(&self, id: String, namespaced: bool) -> Operation {
        let mut operation = self.operation("get", id, "list", false, LIST);
        operation.watches = self.kind.allows("watch") && !self.kind.flags.custom;
        operation.parameters.retain(|parameter| namespaced || parameter.name != "namespace");
        operation.answers = vec![(200, Content::Stream(Definition::list_of(self.kind).name()))];
        operation
    }

    fn watch(&self, id: String, action: &'static str, namespaced: bool, named: bool) -> Operation {
        let mut operation = self.operation("get", id, action, named, LIST);
        operation.parameters.retain(|parameter| namespaced || parameter.name != "namespace");
        operation.answers = vec![(200, Content::Stream(format!("{META}.WatchEvent")))];
        operation
    }

    fn collection(&self) -> Vec<Operation> {
        let kind = self.kind;
        let scope = if kind.namespaced { "Namespaced" } else { "" };
        let object = Definition::of(kind).name();
        let mut operations = Vec::new();
        if kind.allows("list") {
            operations.push(self.list(self.id("list", scope, ""), kind.namespaced));
        }
        if kind.allows("create") {
            operations.push(self.create(self.id("create", scope, ""), false, &object));
        }
        if kind.allows("deletecollection") {
            let own: Vec<Parameter> = match kind.flags.custom {
                // Kubernetes publishes no options of a delete here.
                true => LIST.to_vec(),
                false => LIST.iter().chain(DELETE).filter(|p| p.not_of_deletecollection()).copied().collect(),
            };
            let id = self.id("delete", &format!("Collection{scope}"), "");
            let mut operation = self.operation("delete", id, "deletecollection", false, &own);
            operation.body = if kind.flags.custom { Body::Nothing } else { Body::DeleteOptions };
            operation.answers = vec![(200, Content::Object(format!("{META}.Status")))];
            operations.push(operation);
        }
        operations
    }

    fn create(&self, id: String, named: bool, object: &str) -> Operation {
        let content = Content::Object(object.to_owned());
        let mut operation = self.operation("post", id, "post", named, WRITE);
        operation.body = Body::Object(object.to_owned());
        operation.answers = [200, 201, 202].map(|code| (code, content.clone())).to_vec();
        operation
    }

    fn item(&self) -> Vec<Operation> {
        let object = Definition::of(self.kind).name();
        let verbs: Vec<&str> = self.kind.verbs.iter().map(String::as_str).collect();
        let mut operations = self.read_and_write(&verbs, &object, "");
        if self.kind.allows("delete") {
            let scope = if self.kind.namespaced { "Namespaced" } else { "" };
            let mut operation =
                self.operation("delete", self.id("delete", scope, ""), "delete", true, DELETE);
            let content = if self.tells_deleted() { object } else { format!("{META}.Status") };
            operation.body = Body::DeleteOptions;
            operation.answers = [200, 202].map(|code| (code, Content::Object(content.clone()))).to_vec();
            operations.push(operation);
        }
        operations
    }

    /// Returns true if a delete is answered with the deleted object.
    fn tells_deleted(&self) -> bool {
        // Kubernetes documents a Status for these two, and returns the object all the same.
        let documents_status = matches!(self.kind.resource.as_str(), "devicetaintrules" | "namespaces");
        self.kind.flags.returns_deleted_object && !documents_status
    }

    /// Returns get, update and patch of an object or a subresource.
    fn read_and_write(&self, verbs: &[&str], object: &str, part: &str) -> Vec<Operation> {
        let scope = if self.kind.namespaced { "Namespaced" } else { "" };
        let content = Content::Object(object.to_owned());
        let mut operations = Vec::new();
        if verbs.contains(&"get") {
            let own = if self.kind.flags.custom { parameters::READ_CUSTOM } else { &[] };
            let mut operation = self.operation("get", self.id("read", scope, part), "get", true, own);
            operation.answers = vec![(200, content.clone())];
            operations.push(operation);
        }
        if verbs.contains(&"update") {
            let mut operation = self.operation("put", self.id("replace", scope, part), "put", true, WRITE);
            operation.body = Body::Object(object.to_owned());
            operation.answers = [200, 201].map(|code| (code, content.clone())).to_vec();
            operations.push(operation);
        }
        if verbs.contains(&"patch") {
            let mut operation = self.operation("patch", self.id("patch", scope, part), "patch", true, PATCH);
            let custom = self.kind.flags.custom;
            operation.body = Body::Patch { strategic: !custom };
            let codes: &[u16] = if custom { &[200] } else { &[200, 201] };
            operation.answers = codes.iter().map(|code| (*code, content.clone())).collect();
            operations.push(operation);
        }
        operations
    }

    fn subresource(&self, subresource: &Subresource) -> Vec<Operation> {
        let mut operations = self.operations_of(subresource);
        let context = parameters::context(&self.kind.resource, &subresource.name);
        for operation in &mut operations {
            operation.subresource.clone_from(&subresource.name);
            for parameter in operation.parameters.iter_mut().filter(|_| !context.is_empty()) {
                if !parameter.in_path && parameter.name != "pretty" {
                    *parameter = parameter.of(context);
                }
            }
        }
        operations
    }

    fn operations_of(&self, subresource: &Subresource) -> Vec<Operation> {
        let part = super::capital(&subresource.name);
        let verbs: Vec<&str> = subresource.verbs.iter().map(String::as_str).collect();
        let scope = if self.kind.namespaced { "Namespaced" } else { "" };
        if let Some((_, own)) = CONNECT.iter().find(|(name, _)| *name == subresource.name) {
            return self.connect(subresource, own);
        }
        if subresource.name == "log" {
            let mut operation = self.operation("get", self.id("read", scope, &part), "get", true, LOG);
            operation.answers = vec![(200, Content::Log)];
            return vec![operation];
        }
        let object = self.object_of(subresource);
        let mut operations = self.read_and_write(&verbs, &object, &part);
        if verbs.contains(&"create") {
            operations.push(self.create(self.id("create", scope, &part), true, &object));
        }
        // Operations of custom kinds name the resource's own.
        if !self.kind.flags.custom {
            operations.iter_mut().for_each(|operation| operation.gvk = subresource.gvk.clone());
        }
        operations
    }

    fn object_of(&self, subresource: &Subresource) -> String {
        let gvk = &subresource.gvk;
        if *gvk == self.kind.gvk {
            return Definition::of(self.kind).name();
        }
        let entry = orlop_api::schema::builtin::type_of(&gvk.group, &gvk.version, &gvk.kind);
        entry.map_or_else(|| format!("{META}.Status"), |entry| entry.name().to_owned())
    }

    fn connect(&self, subresource: &Subresource, own: &[Parameter]) -> Vec<Operation> {
        const METHODS: &[(&str, &str, &str)] = &[
            ("delete", "delete", "Delete"),
            ("get", "get", "Get"),
            ("get", "head", "Head"),
            ("get", "options", "Options"),
            ("patch", "patch", "Patch"),
            ("create", "post", "Post"),
            ("update", "put", "Put"),
        ];
        let has = |verb: &str| subresource.verbs.iter().any(|allowed| allowed == verb);
        let scope = if self.kind.namespaced { "Namespaced" } else { "" };
        let one = |(_, method, name): &(&str, &'static str, &str)| {
            let id = self.id("connect", &format!("{name}{scope}"), &super::capital(&subresource.name));
            let mut operation = self.operation(method, id, "connect", true, own);
            operation.parameters.retain(|parameter| parameter.name != "pretty");
            operation.gvk = subresource.gvk.clone();
            operation.answers = vec![(200, Content::Text)];
            operation
        };
        // Discovery has no verbs of the last two, which only a proxy takes.
        let is_taken = |method: &str| subresource.name == "proxy" || !matches!(method, "head" | "options");
        METHODS.iter().filter(|(verb, method, _)| has(verb) && is_taken(method)).map(one).collect()
    }
}

/// Returns the path that lists the resources of a group version.
pub(super) fn root(gv: &GroupVersion) -> Path {
    let operation = Operation {
        method: "get",
        id: format!("get{}APIResources", super::camel(gv, true)),
        tag: super::tag(gv),
        action: "",
        gvk: GroupVersionKind::default(),
        kind: String::new(),
        subresource: String::new(),
        watches: false,
        custom: false,
        parameters: Vec::new(),
        body: Body::Nothing,
        answers: vec![(200, Content::Object(format!("{META}.APIResourceList")))],
    };
    Path { path: format!("{}/", super::base(gv)), operations: vec![operation] }
}
