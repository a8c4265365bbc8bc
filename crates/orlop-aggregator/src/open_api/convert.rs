//! Version 3 documents from version 2, for extension API servers that have no other.

use serde_json::{Map, Value, json};

use super::{Spec, references};

/// Prefix of references to schemas of version 3.
const SCHEMAS: &str = "#/components/schemas/";
/// Prefix of references to parameters of version 3.
const PARAMETERS: &str = "#/components/parameters/";
/// Fields of a version 2 parameter that belong to the schema in version 3.
const SCHEMA_FIELDS: &[&str] = &[
    "type",
    "format",
    "items",
    "default",
    "enum",
    "maximum",
    "minimum",
    "maxLength",
    "minLength",
    "pattern",
    "uniqueItems",
];
/// Operations of a path item.
const METHODS: &[&str] = &["get", "put", "post", "delete", "options", "head", "patch"];

/// Returns the version 3 document of a part of a version 2 document.
pub fn to_v3(spec: &Spec) -> Value {
    let shared = &spec.parameters;
    let paths: Map<String, Value> =
        spec.paths.iter().map(|(path, item)| (path.clone(), path_item(item, shared))).collect();
    let others = shared.iter().filter(|(_, value)| value["in"] != "body");
    let others: Map<String, Value> =
        others.map(|(name, value)| (name.clone(), parameter(value.clone()))).collect();
    let mut document = json!({
        "openapi": "3.0.0", "info": {"title": "Generic API Server", "version": "v1"}, "paths": paths,
        "components": {"schemas": spec.definitions},
    });
    if !others.is_empty() {
        document["components"]["parameters"] = others.into();
    }
    references::rewrite(&mut document, &|name| Some(format!("{SCHEMAS}{name}")));
    document
}

fn path_item(item: &Value, shared: &Map<String, Value>) -> Value {
    let mut converted = Map::new();
    for (field, value) in item.as_object().into_iter().flatten() {
        let value = match field.as_str() {
            method if METHODS.contains(&method) => operation(value, shared),
            "parameters" => parameters(value, shared).0.into(),
            _ => value.clone(),
        };
        converted.insert(field.clone(), value);
    }
    converted.into()
}

fn operation(operation: &Value, shared: &Map<String, Value>) -> Value {
    let media_types = |field: &str| -> Vec<String> {
        let listed = operation[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        let listed: Vec<String> = listed.map(str::to_owned).collect();
        if listed.is_empty() { vec!["application/json".to_owned()] } else { listed }
    };
    let (consumes, produces) = (media_types("consumes"), media_types("produces"));
    let mut converted = Map::new();
    for (field, value) in operation.as_object().into_iter().flatten() {
        match field.as_str() {
            "consumes" | "produces" | "schemes" => {}
            "parameters" => {
                let (others, body) = parameters(value, shared);
                converted.insert(field.clone(), others.into());
                if let Some(body) = body {
                    let mut request = json!({"content": content(&consumes, &body["schema"])});
                    for name in ["description", "required"] {
                        if let Some(value) = body.get(name) {
                            request[name] = value.clone();
                        }
                    }
                    converted.insert("requestBody".to_owned(), request);
                }
            }
            "responses" => {
                let responses = value.as_object().into_iter().flatten();
                let responses: Map<String, Value> =
                    responses.map(|(code, answer)| (code.clone(), response(answer, &produces))).collect();
                converted.insert(field.clone(), responses.into());
            }
            _ => {
                converted.insert(field.clone(), value.clone());
            }
        }
    }
    converted.into()
}

/// Returns parameters, and the one in the body if there is one. References to shared parameters stay references, but to
/// those of bodies.
fn parameters(value: &Value, shared: &Map<String, Value>) -> (Vec<Value>, Option<Value>) {
    let (mut others, mut body) = (Vec::new(), None);
    for given in value.as_array().into_iter().flatten() {
        let name =
            given["$ref"].as_str().and_then(|reference| reference.strip_prefix(references::PARAMETERS));
        let referred = name.and_then(|name| shared.get(name));
        match (referred.unwrap_or(given), name) {
            (one, _) if one["in"] == "body" => body = body.or_else(|| Some(one.clone())),
            (_, Some(name)) => others.push(json!({"$ref": format!("{PARAMETERS}{name}")})),
            (one, None) => others.push(parameter(one.clone())),
        }
    }
    (others, body)
}

fn parameter(mut parameter: Value) -> Value {
    let Some(fields) = parameter.as_object_mut() else { return parameter };
    let mut schema = Map::new();
    for name in SCHEMA_FIELDS {
        if let Some(value) = fields.remove(*name) {
            schema.insert((*name).to_owned(), value);
        }
    }
    if !schema.is_empty() {
        fields.insert("schema".to_owned(), schema.into());
    }
    parameter
}

fn response(response: &Value, produces: &[String]) -> Value {
    let mut converted = response.clone();
    let Some(fields) = converted.as_object_mut() else { return converted };
    if let Some(schema) = fields.remove("schema") {
        fields.insert("content".to_owned(), content(produces, &schema));
    }
    converted
}

fn content(media_types: &[String], schema: &Value) -> Value {
    let of = |media_type: &String| (media_type.clone(), json!({"schema": schema}));
    media_types.iter().map(of).collect::<Map<String, Value>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_parameters_and_references_are_converted() {
        let v2 = json!({
            "paths": {"/apis/a/v1/lamps": {
                "post": {
                    "consumes": ["*/*"], "produces": ["application/json", "application/yaml"],
                    "parameters": [
                        {"in": "body", "name": "body", "required": true, "schema": {"$ref": "#/definitions/Lamp"}},
                        {"in": "query", "name": "dryRun", "type": "string", "uniqueItems": true},
                    ],
                    "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/Lamp"}}},
                    "x-kubernetes-action": "post",
                },
                "delete": {"parameters": [{"$ref": "#/parameters/body-a"}, {"$ref": "#/parameters/force-b"}]},
                "parameters": [{"in": "query", "name": "pretty", "type": "string"}],
            }},
            "parameters": {
                "body-a": {"in": "body", "name": "body", "schema": {"$ref": "#/definitions/Lamp"}},
                "force-b": {"in": "query", "name": "force", "type": "boolean"},
            },
            "definitions": {"Lamp": {"type": "object", "properties": {"next": {"$ref": "#/definitions/Lamp"}}}},
        });
        let v3 = to_v3(&Spec::parse(v2.to_string().as_bytes()).unwrap());
        let lamp = json!({"$ref": "#/components/schemas/Lamp"});
        let post = &v3["paths"]["/apis/a/v1/lamps"]["post"];
        let wanted = json!({"required": true, "content": {"*/*": {"schema": lamp}}});
        assert_eq!(post["requestBody"], wanted);
        let query =
            json!([{"in": "query", "name": "dryRun", "schema": {"type": "string", "uniqueItems": true}}]);
        assert_eq!(post["parameters"], query);
        assert_eq!(post["responses"]["200"]["content"]["application/yaml"]["schema"], lamp);
        assert_eq!(post["x-kubernetes-action"], "post");
        assert_eq!(v3["components"]["schemas"]["Lamp"]["properties"]["next"], lamp);
        let delete = &v3["paths"]["/apis/a/v1/lamps"]["delete"];
        assert_eq!(delete["requestBody"]["content"]["application/json"]["schema"], lamp);
        assert_eq!(delete["parameters"], json!([{"$ref": "#/components/parameters/force-b"}]));
        let shared = json!({"force-b": {"in": "query", "name": "force", "schema": {"type": "boolean"}}});
        assert_eq!(v3["components"]["parameters"], shared);
        let common = &v3["paths"]["/apis/a/v1/lamps"]["parameters"][0]["schema"];
        assert_eq!(common["type"], "string");
    }
}
