//! A kind's `.proto`: checked against the contract of [`crate::wire`], and used to turn specs and statuses
//! into JSON and back.

use bytes::Bytes;
use prost::Message;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, Kind as FieldKind, MessageDescriptor,
    MethodDescriptor, SerializeOptions,
};
use serde_json::Value;

use crate::kinds::Kind;

const META: &str = "nvidia.nvsentinel.v1alpha1";

/// Why a kind cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("kind {kind}: {why}")]
pub struct ShapeError {
    kind: &'static str,
    why: String,
}

/// The parts of an object that differ from kind to kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Spec,
    Status,
}

impl Part {
    /// The name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::Status => "status",
        }
    }
}

/// What the server needs to know of a kind's messages.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    spec: MessageDescriptor,
    status: MessageDescriptor,
}

/// What a field has to be.
enum Field<'a> {
    Text,
    Bytes,
    /// A shared message, by name.
    Shared(&'static str),
    /// One of the kind's own.
    Own(&'a MessageDescriptor),
}

impl Shape {
    /// Reads the kind's `.proto` and checks that every method and message is as the server will read it.
    pub(crate) fn of(kind: &Kind) -> Result<Self, ShapeError> {
        check(kind).map_err(|why| ShapeError { kind: kind.kind, why })
    }

    pub(crate) fn descriptor(&self, part: Part) -> &MessageDescriptor {
        match part {
            Part::Spec => &self.spec,
            Part::Status => &self.status,
        }
    }

    /// A part as it travels, as JSON.
    pub(crate) fn decode(&self, part: Part, bytes: Bytes) -> Result<Value, String> {
        let message = DynamicMessage::decode(self.descriptor(part).clone(), bytes)
            .map_err(|error| format!("{}: {error}", part.name()))?;
        to_json(part, &message)
    }

    /// A part in JSON, as it travels. Fields that the `.proto` does not know are left out.
    pub(crate) fn encode(&self, part: Part, value: &Value) -> Result<Bytes, String> {
        Ok(self.message(part, value)?.encode_to_vec().into())
    }

    /// A part in the one form the server writes: known fields only, each with the type the `.proto` says.
    /// Two parts that mean the same are equal in this form. Null stays null.
    pub(crate) fn normal(&self, part: Part, value: &Value) -> Result<Value, String> {
        if value.is_null() {
            return Ok(Value::Null);
        }
        to_json(part, &self.message(part, value)?)
    }

    fn message(&self, part: Part, value: &Value) -> Result<DynamicMessage, String> {
        let options = DeserializeOptions::new().deny_unknown_fields(false);
        DynamicMessage::deserialize_with_options(self.descriptor(part).clone(), value, &options)
            .map_err(|error| format!("{}: {error}", part.name()))
    }
}

fn to_json(part: Part, message: &DynamicMessage) -> Result<Value, String> {
    // 64-bit integers are numbers in Kubernetes' JSON; fields without a value are written all the same, as
    // Kubernetes writes a condition's empty message.
    let options = SerializeOptions::new().stringify_64_bit_integers(false).skip_default_fields(false);
    message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|error| format!("{}: {error}", part.name()))
}

fn check(kind: &Kind) -> Result<Shape, String> {
    let pool = DescriptorPool::decode(kind.descriptors).map_err(|error| error.to_string())?;
    let service = pool
        .get_service_by_name(kind.service)
        .ok_or_else(|| format!("its descriptors have no service {}", kind.service))?;
    let method = |name: String| {
        service.methods().find(|m| m.name() == name).ok_or_else(|| format!("{} lacks {name}", kind.service))
    };
    let (noun, text, opts) = (kind.noun, Field::Text, Field::Shared);

    let get = method(format!("Get{noun}"))?;
    let object = own(&get.output(), 1)?;
    let (spec, status) = (own(&object, 3)?, own(&object, 4)?);
    fields(&object, &[(1, opts("TypeMeta")), (2, opts("ObjectMeta"))])?;
    fields(&get.input(), &[(1, text), (2, Field::Text), (3, opts("GetOptions"))])?;

    let list = method(format!("List{noun}s"))?;
    let items = own(&list.output(), 1)?;
    fields(&items, &[(1, opts("TypeMeta")), (2, opts("ListMeta")), (3, Field::Own(&object))])?;
    let watch = method(format!("Watch{noun}s"))?;
    fields(&watch.output(), &[(1, Field::Text), (2, Field::Own(&object))])?;
    for method in [&list, &watch] {
        fields(&method.input(), &[(1, Field::Text), (2, opts("ListOptions"))])?;
    }

    let patch = method(format!("Patch{noun}"))?;
    let patched = [(1, Field::Text), (2, Field::Text), (3, Field::Text), (4, Field::Bytes), (6, Field::Text)];
    fields(&patch.input(), &patched)?;
    let delete = method(format!("Delete{noun}"))?;
    fields(&delete.input(), &[(1, Field::Text), (2, Field::Text), (3, opts("DeleteOptions"))])?;

    let writes = [format!("Create{noun}"), format!("Update{noun}"), format!("Update{noun}Status")];
    for name in writes {
        let write = method(name)?;
        fields(&write.input(), &[(1, Field::Own(&object))])?;
        answers(&write, &object)?;
    }
    answers(&patch, &object)?;
    if service.methods().any(|method| method.is_server_streaming() != (method == watch)) {
        return Err(format!("{} must stream, and nothing else", watch.full_name()));
    }
    Ok(Shape { spec, status })
}

/// The message in a field of the kind's own making.
fn own(message: &MessageDescriptor, number: u32) -> Result<MessageDescriptor, String> {
    match message.get_field(number).map(|field| field.kind()) {
        Some(FieldKind::Message(inner)) => Ok(inner),
        _ => Err(format!("field {number} of {} must be a message", message.full_name())),
    }
}

fn answers(method: &MethodDescriptor, object: &MessageDescriptor) -> Result<(), String> {
    if method.output() == *object {
        return Ok(());
    }
    Err(format!("{} must answer with {}", method.full_name(), object.full_name()))
}

fn fields(message: &MessageDescriptor, wanted: &[(u32, Field<'_>)]) -> Result<(), String> {
    for (number, wanted) in wanted {
        let found = message.get_field(*number).map(|field| field.kind());
        let fits = match (wanted, &found) {
            (Field::Text, Some(FieldKind::String)) | (Field::Bytes, Some(FieldKind::Bytes)) => true,
            (Field::Shared(name), Some(FieldKind::Message(m))) => m.full_name() == format!("{META}.{name}"),
            (Field::Own(object), Some(FieldKind::Message(m))) => m == *object,
            _ => false,
        };
        if !fits {
            return Err(format!("field {number} of {} is not as meta.proto asks", message.full_name()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use orlop_device_client::api::{Condition, GpuSpec, GpuStatus};
    use serde_json::json;

    use super::*;
    use crate::kinds::GPU;

    #[test]
    fn specs_and_statuses_become_json_as_kubernetes_writes_it_and_come_back() {
        let shape = Shape::of(&GPU).unwrap();
        let spec = GpuSpec { uuid: "GPU-1".into() }.encode_to_vec();
        assert_eq!(shape.decode(Part::Spec, spec.clone().into()).unwrap(), json!({"uuid": "GPU-1"}));
        let condition = Condition {
            r#type: "Ready".into(),
            status: "True".into(),
            observed_generation: Some(3),
            last_transition_time: Some(prost_types::Timestamp { seconds: 1, nanos: 0 }),
            ..Condition::default()
        };
        let status = GpuStatus { conditions: vec![condition], recommended_action: None }.encode_to_vec();
        let value = shape.decode(Part::Status, status.clone().into()).unwrap();
        let expected = json!({"conditions": [{
            "type": "Ready", "status": "True", "observedGeneration": 3,
            "lastTransitionTime": "1970-01-01T00:00:01Z", "reason": "", "message": "",
        }]});
        assert_eq!(value, expected);
        assert_eq!(shape.encode(Part::Status, &value).unwrap(), status);
        assert_eq!(shape.normal(Part::Status, &value).unwrap(), value);
    }

    #[test]
    fn what_the_proto_does_not_know_is_left_out_and_wrong_types_are_refused() {
        let shape = Shape::of(&GPU).unwrap();
        let normal = shape.normal(Part::Spec, &json!({"uuid": "GPU-1", "color": "red"})).unwrap();
        assert_eq!(normal, json!({"uuid": "GPU-1"}));
        assert!(shape.normal(Part::Spec, &json!({"uuid": 5})).unwrap_err().starts_with("spec: "));
        assert!(shape.normal(Part::Spec, &json!("text")).is_err());
        assert!(shape.decode(Part::Spec, Bytes::from_static(b"\xff")).is_err());
    }

    #[test]
    fn a_kind_whose_proto_disagrees_is_refused_by_name() {
        let other = Kind { service: "nvidia.nvsentinel.v1alpha1.Nothing", ..copy(&GPU) };
        assert!(Shape::of(&other).unwrap_err().to_string().contains("no service"));
        let other = Kind { noun: "Card", ..copy(&GPU) };
        assert!(Shape::of(&other).unwrap_err().to_string().contains("lacks GetCard"));
    }

    fn copy(kind: &Kind) -> Kind {
        Kind { ..*kind }
    }
}
