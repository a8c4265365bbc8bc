//! Groups, labels, annotations and field managers: the wire contract with kro's users and with kubectl's ApplySets.

/// Group of ResourceGraphDefinitions and, unless the author says otherwise, of the kinds they define.
pub(crate) const GROUP: &str = "kro.run";
/// Group of GraphRevisions.
pub(crate) const INTERNAL_GROUP: &str = "internal.kro.run";
/// Version of both.
pub(crate) const VERSION: &str = "v1alpha1";
/// `apiVersion` of a ResourceGraphDefinition.
pub(crate) const API_VERSION: &str = "kro.run/v1alpha1";
/// `apiVersion` of a GraphRevision.
pub(crate) const REVISION_API_VERSION: &str = "internal.kro.run/v1alpha1";

/// Finalizer on ResourceGraphDefinitions and instances.
pub(crate) const FINALIZER: &str = "kro.run/finalizer";

/// Set on everything that is created here.
pub(crate) const OWNED: &str = "kro.run/owned";
/// Version of the controller that wrote the object last.
pub(crate) const CONTROLLER_VERSION: &str = "kro.run/kro-version";
/// Uid of the ResourceGraphDefinition.
pub(crate) const DEFINITION_ID: &str = "kro.run/resource-graph-definition-id";
/// Name of the ResourceGraphDefinition.
pub(crate) const DEFINITION_NAME: &str = "kro.run/resource-graph-definition-name";
/// Hash of a GraphRevision's snapshot.
pub(crate) const REVISION_HASH: &str = "kro.run/graph-revision-hash";
/// Uid of the instance that a child belongs to.
pub(crate) const INSTANCE_ID: &str = "kro.run/instance-id";
/// Name of that instance.
pub(crate) const INSTANCE_NAME: &str = "kro.run/instance-name";
/// Namespace of that instance, if it has one.
pub(crate) const INSTANCE_NAMESPACE: &str = "kro.run/instance-namespace";
/// Group of that instance.
pub(crate) const INSTANCE_GROUP: &str = "kro.run/instance-group";
/// Version of that instance.
pub(crate) const INSTANCE_VERSION: &str = "kro.run/instance-version";
/// Kind of that instance.
pub(crate) const INSTANCE_KIND: &str = "kro.run/instance-kind";
/// Id of the node that a child comes from.
pub(crate) const NODE_ID: &str = "kro.run/node-id";
/// Position of an item in its collection.
pub(crate) const COLLECTION_INDEX: &str = "kro.run/collection-index";
/// Number of items in the collection.
pub(crate) const COLLECTION_SIZE: &str = "kro.run/collection-size";
/// Kubernetes' recommended label.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Membership of a child in an ApplySet.
pub(crate) const PART_OF: &str = "applyset.kubernetes.io/part-of";
/// Id of the ApplySet, on its parent.
pub(crate) const APPLYSET_ID: &str = "applyset.kubernetes.io/id";
/// Tool that manages the ApplySet.
pub(crate) const APPLYSET_TOOLING: &str = "applyset.kubernetes.io/tooling";
/// Group-kinds of the members.
pub(crate) const APPLYSET_KINDS: &str = "applyset.kubernetes.io/contains-group-kinds";
/// Namespaces of the members, without the parent's.
pub(crate) const APPLYSET_NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";
/// Checksum over id, group-kinds and namespaces.
pub(crate) const APPLYSET_HASH: &str = "internal.kro.run/applyset-inventory-hash";

/// Deletion wave of a child: higher numbers go first.
pub(crate) const APPLY_ORDER: &str = "internal.kro.run/apply-order";
/// Deletion policy of a child, so that deletion needs no graph.
pub(crate) const ON_DELETE: &str = "internal.kro.run/on-delete";
/// Hash of the manifest that a child was applied from, so that a restarted controller need not apply it again.
pub(crate) const APPLIED: &str = "internal.kro.run/applied-hash";
/// Value of [`ON_DELETE`] that keeps the object.
pub(crate) const RETAIN: &str = "Retain";

/// Set to `suspended` on an instance to stop reconciling it.
pub(crate) const RECONCILE: &str = "kro.run/reconcile";
/// Set to `"true"` on a ResourceGraphDefinition to let it break its CRD.
pub(crate) const ALLOW_BREAKING: &str = "kro.run/allow-breaking-changes";

/// Field manager of labels and finalizers on instances.
pub(crate) const LABELLER: &str = "kro.run/labeller";
/// Field manager of the inventory on instances.
pub(crate) const APPLYSET_PARENT: &str = "kro.run/applyset-parent";
/// Field manager of children.
pub(crate) const APPLYSET: &str = "kro.run/applyset";

/// Version told in labels; a label value, so without `+`.
pub(crate) const TOOL_VERSION: &str = concat!("orlop-", env!("CARGO_PKG_VERSION"));

/// Prefixes of labels and annotations that templates may not set.
pub(crate) const RESERVED_PREFIXES: [&str; 2] = ["kro.run/", "internal.kro.run/"];

/// Description of `status` in generated CRDs, by which they are known. `managedResources` is not among its properties: kro
/// would refuse to take the CRD back, since a property would be removed.
pub(crate) const STATUS_DESCRIPTION: &str =
    "Status of an instance. managedResources lists its nodes and their objects, each with its state.";
