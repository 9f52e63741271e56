"""A small plan of each kind."""

from headway.core.cluster import Fabric
from headway.core.device_mesh import DeviceMesh, Submesh
from headway.core.placement import Placement
from headway.core.placement_problem import PlacementProblem, ServingCluster, WorkloadSource
from headway.core.plan.document import Plan
from headway.core.plan.placement import PlacementPlan, PredictedAttainment, Predictions
from headway.core.plan.serving import ServingPlan
from headway.core.plan.training import (
    DeviceMemory,
    OperatorSharding,
    ParameterSharding,
    TensorSharding,
    TrainingAlternative,
    TrainingPlan,
    TrainingStage,
)
from headway.core.sharding_spec import Shard, ShardingSpec
from headway.core.training_cluster import NodeGroup, TrainingCluster

NOTHING = PredictedAttainment(attainment=1.0, models=(), utilisation=())
SERVING = ServingPlan(plan_id="plan-1", created_at_s=1.0, models=(), workers=(), assignments=())
PLACEMENT = PlacementPlan(
    plan_id="placement-1",
    created_at_s=1.0,
    problem=PlacementProblem(
        models=(),
        profiles=(),
        cluster=ServingCluster(device="V100-16", num_devices=1, devices_per_node=1, memory_bytes=1),
        workload=WorkloadSource(spec="poisson:rate=1"),
    ),
    placement=Placement(groups=()),
    buckets=(),
    predictions=Predictions(searched=NOTHING, held_out=NOTHING),
    search_s=0.0,
)
GIB = 2**30
TRAINING = TrainingPlan(
    plan_id="training-1",
    created_at_s=1.0,
    model="zoo:gpt3-1.3b",
    graph_hash="0123",
    cluster=TrainingCluster(
        groups=(
            NodeGroup(
                device="V100-16",
                num_nodes=2,
                devices_per_node=4,
                memory_bytes=15 * GIB,
                link=Fabric(latency_s=1e-5, bytes_per_s=130e9),
                network=Fabric(latency_s=3e-5, bytes_per_s=3e9),
            ),
        )
    ),
    batch=1024,
    num_micro_batches=32,
    precision="bfloat16",
    method="alpa",
    flops=2e15,
    stages=tuple(
        TrainingStage(
            operators=(f"matmul_{number}", f"matmul_{number}_backward"),
            mesh=DeviceMesh(Submesh(1, 4), shape),
            first_device=4 * number,
            shardings=(
                OperatorSharding(
                    operator=f"matmul_{number}", splits=("m", "k"), result=ShardingSpec((Shard(0), Shard(1, outer=2)))
                ),
                OperatorSharding(operator=f"matmul_{number}_backward", splits=("", "")),
            ),
            parameters=(ParameterSharding(parameter="weight", spec=ShardingSpec((None, Shard(1))), zero_stage=number),),
            received=(TensorSharding(tensor="x", spec=ShardingSpec.replicated(2)),) if number else (),
            in_flight=2 - number,
            recomputes=number == 1,
            layers=(1,),
            forward_s=0.010,
            backward_s=0.020,
            handover_s=0.001 * (1 - number),
            once_s=0.050,
            memory=DeviceMemory(
                weights_bytes=2 * GIB,
                gradients_bytes=4 * GIB,
                optimizer_bytes=3 * GIB // (1 + number),
                activations_bytes=2 * GIB,
                workspace_bytes=GIB,
            ),
        )
        for number, shape in enumerate(((2, 2), (4, 1)))
    ),
    iteration_s=1.072,
    relative_error=0.1,
    search_s=3.0,
    search_cpu_s=5.0,
    reasons=("Two stages hand over less than one stage exchanges between nodes.",),
    alternatives=(
        TrainingAlternative(
            name="data parallel", iteration_s=1.608, layout="1 stage on 8x1", why_not=("It synchronises 2.6 GB.",)
        ),
        TrainingAlternative(name="ZeRO-2", missing_bytes=512 * 2**20, why_not=("It lacks 512 MiB.",)),
    ),
)
PLANS: dict[str, Plan] = {"serving": SERVING, "placement": PLACEMENT, "training": TRAINING}
